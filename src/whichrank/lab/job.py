"""A drill's job while it runs, as the fault that breaks it from outside sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from whichrank.lab.setup import Setup
from whichrank.lab.workloads.plan import Plan

LOOK_S = 0.05


class JobEndedError(Exception):
    """The job ended, or did not get there in time."""


@dataclass(slots=True)
class Job:
    """The watched job: `process` is `whichrank run`, the ranks are known by what they write."""

    setup: Setup
    process: subprocess.Popen[bytes]

    @property
    def plan(self) -> Plan:
        return self.setup.plan

    @property
    def folder(self) -> Path:
        return self.setup.folder

    @property
    def out(self) -> Path:
        """The folder that `whichrank run --out` writes."""
        return self.folder / "out"

    def progress(self, rank: int) -> tuple[int, int]:
        """Pid and step of a rank; (0, -1) before it has said anything."""
        try:
            words = (self.folder / "progress" / str(rank)).read_text(encoding="ascii").split()
            return int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            return 0, -1

    def pid(self, rank: int) -> int:
        return self.progress(rank)[0]

    def await_step(self, rank: int, step: int, patience_s: float = 90.0) -> int:
        """Until a rank has begun this step; returns its pid."""
        deadline = time.monotonic() + patience_s
        while (found := self.progress(rank))[1] < step or not found[0]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise JobEndedError(f"rank {rank} did not reach step {step}")
            time.sleep(LOOK_S)
        return found[0]

    def strike(self) -> None:
        """The fault begins now."""
        path = self.folder / "struck"
        if not path.exists():
            path.write_text(f"{time.time()}\n", encoding="ascii")

    def signal(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a rank, at once the beginning of the fault."""
        pid = self.pid(rank)
        if not pid:
            raise JobEndedError(f"rank {rank} has not started")
        self.strike()
        os.kill(pid, number)
