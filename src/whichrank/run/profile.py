"""Start a job as it is, with a hook that takes a short profile of chosen ranks."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model.files import private_folder
from whichrank.run.watch import private
from whichrank.run.watch.launch import Job
from whichrank.worker import profiler

PACKAGE = "_whichrank_profile"
PREFIX = "whichrank-profile-"
_ABANDONED_S = 3600.0
"""A hook that is younger may be of a job that is about to start."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to record."""

    ranks: tuple[int, ...] | None = None
    """None: all of them."""
    skip: int = 10
    """Optimizer steps before it begins."""
    steps: int = 5
    seconds: float = 60.0
    """It ends at the first boundary between steps after this long, however few steps it has."""
    most_bytes: int = 256 << 20
    """A compressed profile that is larger is not kept."""
    shapes: bool = False
    stacks: bool = False
    nvtx: bool = False


def variables(folder: Path, out: Path, wishes: Wishes) -> dict[str, str]:
    """What the job needs in its environment for the hook in `folder`."""
    before = os.environ.get("PYTHONPATH")
    path = f"{folder}{os.pathsep}{before}" if before else str(folder)
    asked = {**asdict(wishes), "ranks": list(wishes.ranks) if wishes.ranks is not None else None}
    return {"PYTHONPATH": path, profiler.SETTINGS: json.dumps({**asked, "folder": str(out.absolute())})}


def install(folder: Path) -> None:
    """Put the hook into the folder: it runs before the first line of every Python below it."""
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copyfile(profiler.__file__, package / "startup.py")
    (folder / "sitecustomize.py").write_text(private.hook_source(PACKAGE), encoding="utf-8")


def in_use(folder: Path) -> bool:
    """Whether a process of the job lives that has the hook on its path.

    Were the folder gone, anybody could make one of that name, and the next Python of that process would run it."""
    return any(
        str(folder) in processes.environ(pid).get("PYTHONPATH", "").split(os.pathsep)
        for pid in processes.everybody()
        if pid != os.getpid()
    )


def sweep() -> None:
    """Remove hooks that were left for processes that have ended by now."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if mine and time.time() - status.st_mtime > _ABANDONED_S and not in_use(folder):
                private.remove(folder)


@contextmanager
def hook(out: Path, wishes: Wishes) -> Iterator[dict[str, str]]:
    """The hook in a folder of its own, while a job may need it; what the job needs in its environment."""
    private_folder(out)
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        install(folder)
        yield variables(folder, out, wishes)
    finally:
        if not in_use(folder):
            private.remove(folder)


@contextmanager
def hooked(out: Path, wishes: Wishes) -> Iterator[None]:
    """Every job that is started meanwhile is profiled."""
    with hook(out, wishes) as needed:
        before = {name: os.environ.get(name) for name in needed}
        os.environ.update(needed)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def run(command: Sequence[str], out: Path, wishes: Wishes, tell: Callable[[str], None]) -> int:
    """Run the command to its end; its exit code, negative for a signal."""
    with hook(out, wishes) as needed:
        job = Job(command, needed)
        try:
            code = job.wait()
        finally:
            job.release()
    failures(out, tell)
    return code


def failures(out: Path, tell: Callable[[str], None]) -> None:
    """Why a rank has no profile, where it could say so."""
    for error in sorted(out.glob("rank-*.error.txt")):
        tell(
            f"{error.stem.removesuffix('.error')}: {error.read_text(encoding='utf-8', errors='replace').strip()[:300]}"
        )


def recorded(out: Path) -> list[Path]:
    """The profiles that came out of it."""
    return sorted(out.glob("rank-*.json.gz"))
