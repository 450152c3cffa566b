"""Watch a healthy job with every kind of pause for half an hour: nothing may be told as wrong.

python tools/soak.py [SECONDS]
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 1800.0
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Soaked:
    """What came of it."""

    code: int
    told: str
    alarms: list[dict[str, Any]] = field(default_factory=list)
    verdict: bool = False

    @property
    def levels(self) -> Counter[str]:
        return Counter(alarm["level"] for alarm in self.alarms)

    @property
    def healthy(self) -> bool:
        return self.code == 0 and not self.verdict and not self.levels["confirmed"] and not self.levels["crash"]


def soak(seconds: float, folder: Path) -> Soaked:
    """Run the job watched, until a round ends after so many seconds."""
    unwanted = ("NCCL_", "TORCH_", "GLOO_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4", "--master_port", str(port)]
    job += [str(HERE / "soak_job.py"), str(seconds), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", "run", "--no-history", "--out", str(folder / "out"), "--", *job],
        env={**environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        timeout=seconds + 900, check=False,
    )  # fmt: skip
    if not (folder / "out" / "run.json").exists():
        return Soaked(done.returncode or 1, done.stderr)
    state = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    return Soaked(done.returncode, done.stderr, state["alarms"], (folder / "out" / "verdict.json").exists())


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder:
        result = soak(seconds, Path(folder))
    for alarm in result.alarms:
        ended = " (withdrawn)" if "withdrawn" in alarm else ""
        print(f"{alarm['time']}  {alarm['level']} after {alarm['silence_s']} s: {alarm['why']}{ended}")
    print(f"the job ended with {result.code}; suspected {result.levels['suspect']} times, ", end="")
    print(f"confirmed {result.levels['confirmed']} times, {'a' if result.verdict else 'no'} verdict")
    if not result.healthy:
        print(result.told)
    return 0 if result.healthy else 1


if __name__ == "__main__":
    sys.exit(main())
