"""The folder that the results of a run go to: this user's alone, and of one run alone."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder, replace_file

STATE = "run.json"
OWN = (
    STATE, "verdict.json", "report.md", "report.html", "bundle", "torch", "history.jsonl", "history.older.jsonl",
    "attempts", "attempts.json", "resumed", "withdrawn", "metrics.prom", "guard", ".uploads",
)  # fmt: skip
"""What a run writes there; anything else in the folder is the user's and stays."""
KEPT = ("excluded_hosts",)
"""What later runs go by as well."""
MOST = 4 << 20


def own_place(path: Path) -> Path:
    """Where a link of this user's own leads; a link of somebody else stays, and is refused as a folder."""
    try:
        mine = path.is_symlink() and path.lstat().st_uid == os.getuid()
        return path.resolve(strict=True) if mine else path
    except OSError:
        return path


def fresh_folder() -> Path:
    """A new folder for this user alone, with a name that nobody can take before."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(tempfile.mkdtemp(prefix=f"whichrank-run-{stamp}-"))


def open_folder(
    out: Path, tell: Callable[[str], None], *, goes_on: Callable[[dict[str, Any]], bool] = lambda _: False
) -> Path:
    """Make the folder, or take it; what another run left there is moved to DIR.STAMP.

    `goes_on` says of an earlier run.json whether it is of the same job, whose results stay."""
    out = own_place(out)
    try:
        private_folder(out)
    except OSError as error:
        raise UsageError(f"can't create the folder {out}: {error.strerror}", "Give --out another place.") from error
    state = read_state(out)
    if state and goes_on(state):
        return out
    if (pid := _watcher_of(state)) is not None:
        raise UsageError(
            f"another run writes to {out} (process {pid})", f"Give another --out, or look at it: whichrank watch {out}"
        )
    left = [name for name in OWN if (out / name).is_symlink() or (out / name).exists()]
    if left:
        tell(f"{out} held the results of another run: they are in {_move(out, left)} now")
    return out


def put_bundle_aside(folder: Path) -> None:
    """Make room for a new bundle: what another one left here must not be taken for its own."""
    if (folder / "manifest.json").exists():
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime((folder / "manifest.json").stat().st_mtime))
        target = _new_folder(folder.with_name(f"{folder.name}.{stamp}"))
        folder.rename(target)  # over an empty folder


def watcher_entry() -> dict[str, Any]:
    """Which process watches, for run.json: by it another run knows whether the folder is in use."""
    row = processes.stat(os.getpid())
    return {"pid": os.getpid(), "start_ticks": row.start_ticks if row else 0, "realm": processes.realm()}


def read_state(out: Path) -> dict[str, Any]:
    """run.json as plain values; empty where there is none that can be read."""
    try:
        with (out / STATE).open(encoding="utf-8", errors="replace") as stream:
            content = json.loads(stream.read(MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _watcher_of(state: dict[str, Any]) -> int | None:
    """The process that watches this run now; None where it has ended, or can't be seen from here."""
    watcher = state.get("watcher")
    if not isinstance(watcher, dict) or watcher.get("realm") != processes.realm() or state.get("state") == "ended":
        return None
    pid, ticks = watcher.get("pid"), watcher.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(ticks, int) or pid == os.getpid():
        return None
    return pid if processes.same(pid, ticks) else None


def _move(out: Path, names: list[str]) -> Path:
    """Beside the folder; inside it where that is not possible, as with a mounted volume."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(_written(out)))
    for home in (out.with_name(f"{out.name}.{stamp}"), out / "earlier" / stamp):
        with suppress(OSError, UsageError):
            target = _new_folder(home)
            for name in names:
                (out / name).rename(target / name)
            for name in KEPT:
                if (out / name).is_file():
                    replace_file(target / name, (out / name).read_bytes(), mode=0o600)
            return target
    raise UsageError(f"can't move the results of another run out of {out}", "Give another --out, or remove them.")


def _written(out: Path) -> float:
    try:
        return (out / STATE).stat().st_mtime
    except OSError:
        return time.time()


def _new_folder(wanted: Path) -> Path:
    wanted.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(1, 1000):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise UsageError(f"there are too many folders named {wanted}", "Remove some of them.")
