"""Two nodes of Ray on this machine, with a token of their own; ended whatever happens."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.conftest import command_environment
from tests.run.watched import free_port

_START_S = 180


@contextmanager
def two_nodes(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Its address, and the environment that may talk to it."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    # Without these a token found in the user's home would decide; a busy machine needs longer than Ray's 30 s.
    given = {
        "HOME": str(folder), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_agent_register_timeout_ms": "180000",
    }  # fmt: skip
    environment = {**command_environment(), **given}
    port = free_port()
    common = ("--block", "--num-cpus=1", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000",
              "--disable-usage-stats")  # fmt: skip
    session = folder / "r"  # sockets below it: their paths must stay short
    commands = [
        ["start", "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={session}", *common],
        ["start", f"--address=127.0.0.1:{port}", *common],
    ]
    started = []
    try:
        for words in commands:
            log = (folder / f"node{len(started)}.log").open("wb")
            node = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip
            started.append(node)
            _wait_for(f"127.0.0.1:{port}", len(started), environment, node, folder)
        yield f"127.0.0.1:{port}", given
    finally:
        for node in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGTERM)  # --block: its own processes end with it
        for node in started:
            try:
                node.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)


COUNT = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print(sum(1 for node in ray.nodes() if node["Alive"]))
"""


def _wait_for(address: str, count: int, environment: dict[str, str], node: subprocess.Popen, folder: Path) -> None:
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, "-c", COUNT, address], capture_output=True, text=True, env=environment, timeout=_START_S,
            check=False,
        )  # fmt: skip
        if done.returncode == 0 and int(done.stdout.split()[-1]) >= count:
            return
        assert node.poll() is None, (folder / f"node{count - 1}.log").read_text()[-3000:]
    raise AssertionError(f"{count} nodes of Ray did not start: {done.stderr[-2000:]}")
