"""Start a faulty job for real, wait for its dumps, and clean up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(
    fault: str,
    out: Path,
    *,
    world: int = 4,
    culprit: int = 2,
    seconds: float = 4.0,
    script: str = "faulty.py",
) -> Path:
    """Run the job with `world` ranks; returns the folder with the dumps."""
    out.mkdir(parents=True, exist_ok=True)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / script), fault, str(out), str(culprit), str(seconds)],
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]
    try:
        for process in ranks:
            process.wait(timeout=90)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return out
