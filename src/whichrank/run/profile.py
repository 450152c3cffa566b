"""Start a job as it is, with a hook that takes a short profile of chosen ranks."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from whichrank.run.watch import private
from whichrank.run.watch.launch import Job
from whichrank.worker import profiler

PACKAGE = "_whichrank_profile"


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
    shapes: bool = True
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


def run(command: Sequence[str], out: Path, wishes: Wishes, tell: Callable[[str], None]) -> int:
    """Run the command to its end; its exit code, negative for a signal."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="whichrank-profile-"))
    try:
        install(folder)
        job = Job(command, variables(folder, out, wishes))
        try:
            code = job.wait()
        finally:
            job.release()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for error in sorted(out.glob("rank-*.error.txt")):
        tell(
            f"{error.stem.removesuffix('.error')}: {error.read_text(encoding='utf-8', errors='replace').strip()[:300]}"
        )
    return code


def recorded(out: Path) -> list[Path]:
    """The profiles that came out of it."""
    return sorted(out.glob("rank-*.json.gz"))
