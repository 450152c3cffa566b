"""The ranks of one host: started together, ended together, and with whoever started them.

`python -m whichrank.worker.ranks FIRST COUNT WORLD ADDRESS PORT -- COMMAND…`. The first rank of the job keeps standard
output; what the others print goes to standard error. When one fails, or standard input ends, all end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

_END_S = 5.0


def main() -> int:
    first, count, world, address, port = sys.argv[1:6]
    command = sys.argv[7:]
    ranks = []
    for local in range(int(count)):
        rank = int(first) + local
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": world, "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": count,
            "MASTER_ADDR": address, "MASTER_PORT": port,
        }  # fmt: skip
        output = None if rank == 0 else sys.stderr
        ranks.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output))  # noqa: S603
    code = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        while any(rank.poll() is None for rank in ranks):
            code = next((rank.returncode for rank in ranks if rank.returncode), 0)
            if code or _left_alone():
                break
        return next((rank.returncode for rank in ranks if rank.returncode), code) or 0
    finally:
        _end(ranks)


def _left_alone() -> bool:
    """Whether standard input has ended; waits a moment."""
    ready, _, _ = select.select([sys.stdin], [], [], 0.1)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        with suppress(ProcessLookupError):
            if rank.poll() is None:
                rank.terminate()
                rank.send_signal(signal.SIGCONT)  # one that was stopped would not hear it
    deadline = time.monotonic() + _END_S
    for rank in ranks:
        try:
            rank.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()


if __name__ == "__main__":
    sys.exit(main())
