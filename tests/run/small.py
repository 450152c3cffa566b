"""Start the small job, watched or not, and wait for what it says in its folder."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.run import watched

JOB = watched.HERE / "small_job.py"
_folders: list[Path] = []


@dataclass
class Small:
    """A job of two ranks that runs."""

    process: subprocess.Popen[str]
    folder: Path
    out: Path

    def __post_init__(self) -> None:
        _folders.append(self.folder)

    def until(self, what: str, there: Callable[[], bool], limit_s: float = 150) -> None:
        deadline = time.monotonic() + limit_s
        while not there():
            assert time.monotonic() < deadline, what
            time.sleep(0.1)

    def until_ready(self) -> None:
        self.until("it starts", lambda: all((self.folder / f"ready.{r}").exists() for r in range(2)))

    def pid(self, rank: int) -> int:
        return int((self.folder / f"pid.{rank}").read_text())

    def pause(self) -> None:
        (self.folder / "pause").touch()

    def end(self) -> int:
        """Let it end, and wait for it."""
        (self.folder / "end").touch()
        (self.folder / "pause").unlink(missing_ok=True)
        return self.process.wait(150)

    @property
    def unharmed(self) -> bool:
        return all((self.folder / f"done.{r}").exists() for r in range(2))


def torchrun(folder: Path, *options: str, script: Path = JOB) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    return [*launcher, "--master_port", str(watched.free_port()), *options, str(script), str(folder)]


def forked(folder: Path, script: Path = JOB) -> list[str]:
    return watched.forked(script, folder, world=2)


def start(tmp_path: Path, *options: str, command: list[str] | None = None, **environ: str) -> Small:
    """Under `whichrank run`, its own output into files."""
    out = tmp_path / "out"
    line = watched.whichrank("run", "--no-history", "--out", out, *options, "--", *(command or forked(tmp_path)))
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=errors, text=True, env=watched.environment(**environ)
        )
    return Small(process, tmp_path, out)


def end_all() -> None:
    """Whatever a test left behind ends by itself when it is told so."""
    while _folders:
        folder = _folders.pop()
        if folder.is_dir():
            (folder / "end").touch()
            (folder / "pause").unlink(missing_ok=True)
