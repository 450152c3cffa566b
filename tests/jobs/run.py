"""Start faulty jobs for real and wait for their dumps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class RealJob:
    """A job of `faulty.py`."""

    fault: str
    world: int = 4
    culprit: int = 2

    @property
    def name(self) -> str:
        return f"{self.fault}_{self.world}_{self.culprit}"


def run_jobs(jobs: Sequence[RealJob], out: Path, *, seconds: float = 2.0, side_by_side: int = 2) -> None:
    """Run the jobs, a few side by side; the dumps of each lie in the folder of its name below `out`."""
    runners = []
    for lane in range(side_by_side):
        mine = [f"{job.fault}:{out / job.name}:{job.world}:{job.culprit}" for job in jobs[lane::side_by_side]]
        command = [sys.executable, str(HERE / "faulty.py"), str(seconds), *mine]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        runners.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        for runner in runners:
            runner.wait(timeout=240)
    finally:
        for runner in runners:
            runner.kill()
            runner.wait()
