"""Checkpoints that are whole or not there: written aside, checksummed, renamed into place, the newest few kept.

A checkpoint is a folder `step-000000000120` with one file for each rank that wrote, and `checkpoint.json`, which
names them with size and SHA-256. Ranks meet in the file system alone, so no collective can hang in here.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from whichrank.model.errors import UsageError, WhichrankError

MARK = "checkpoint.json"
PART = ".part"
POLL_S = 0.05
PATIENCE_S = 600.0
"""How long the ranks of a sharded checkpoint wait for each other."""
Writer = Callable[[BinaryIO], object]


class CheckpointError(WhichrankError):
    """A checkpoint could not be written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint. Usable as a path: that of the file that this rank wrote, or of the only one."""

    folder: Path
    step: int
    world_size: int
    """How many ranks wrote."""
    files: tuple[str, ...]
    saved_ns: int

    @property
    def path(self) -> Path:
        return self.folder / self.files[_identity(None, None)[0] if len(self.files) > 1 else 0]

    def __fspath__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        return self.path.read_bytes()

    def load(self, **options: Any) -> Any:
        """What torch.load makes of it; the options are torch's."""
        return import_module("torch").load(self.path, **options)


def save(
    what: Any,
    folder: str | os.PathLike[str],
    step: int,
    keep: int = 3,
    *,
    sharded: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    timeout_s: float = PATIENCE_S,
) -> Path | None:
    """Save bytes, what a function writes into the stream that it is given, or anything that torch.save takes.

    Rank 0 writes, whether it calls alone or all ranks do (the others get None at once). With `sharded` every rank
    must call: each writes its own part, and all return when rank 0 has committed the whole.
    """
    if keep < 1 or step < 0:
        raise UsageError(f"can't save step {step} and keep {keep}", "Steps count from 0; keep at least one.")
    number, world = _identity(rank, world_size)
    if not sharded:
        number, world = (number, 1) if number == 0 else (-1, 1)
    if number < 0:
        return None
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    if number == 0:
        _sweep(home, _name(step))
        return _lead(what, home, step, keep, world, deadline)
    return _follow(what, home, step, number, deadline)


def latest(folder: str | os.PathLike[str], *, verify: bool = True) -> Checkpoint | None:
    """The newest whole checkpoint; with `verify` every file is read and compared with its checksum.

    All ranks get the same answer, as each looks at all files. What is skipped is warned of, with the reason.
    """
    for path in newest_first(Path(folder)):
        why = problem(path, verify=verify)
        if not why:
            return opened(path)
        warnings.warn(f"skipped the checkpoint {path}: {why}", stacklevel=2)
    return None


def opened(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in this folder, as `save` left it; for a path that `whichrank run` handed on."""
    mark = read_mark(Path(path))
    if mark is None:
        raise UsageError(f"{path} is not a whichrank checkpoint", f"There is no readable {MARK} in it.")
    names = tuple(entry["name"] for entry in mark["files"])
    return Checkpoint(Path(path), mark["step"], len(names), names, mark["saved_ns"])


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints that were committed here, whole or not."""
    marks = [(mark["saved_ns"], mark["step"], path) for path in _entries(folder) if (mark := read_mark(path))]
    return [path for _, _, path in sorted(marks, reverse=True)]


def read_mark(path: Path) -> dict[str, Any] | None:
    """What a checkpoint says of itself; None where it is none, or its words make no sense."""
    if path.name.startswith("."):
        return None
    try:
        with (path / MARK).open("rb") as stream:
            mark = json.loads(stream.read(64 << 20))
        numbers = (mark["whichrank_checkpoint"], mark["step"], mark["saved_ns"])
        rows = mark["files"]
        right = all(type(number) is int for number in numbers) and rows and all(_is_row(row) for row in rows)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return mark if right else None


def _is_row(row: Any) -> bool:
    # A name with a folder in it could lead anywhere.
    return type(row["name"]) is str and Path(row["name"]).name == row["name"] and type(row["bytes"]) is int


def problem(path: Path, *, verify: bool) -> str:
    """What is wrong with a committed checkpoint; "" where nothing is."""
    mark = read_mark(path)
    if mark is None:
        return f"its {MARK} can't be read"
    for row in mark["files"]:
        file = path / row["name"]
        try:
            size = file.stat().st_size
            if size != row["bytes"]:
                return f"{file.name} has {size} bytes instead of {row['bytes']}"
            if verify and _digest(file) != row["sha256"]:
                return f"{file.name} is not what was written: its checksum differs"
        except OSError as error:
            return f"{file.name} can't be read ({error.strerror})"
    return ""


def _lead(what: Any, home: Path, step: int, keep: int, world: int, deadline: float) -> Path:
    """Rank 0: open the place, write, wait for the others, commit."""
    part = home / f".{_name(step)}.{uuid.uuid4().hex}{PART}"
    part.mkdir()
    try:
        _write(what, part, 0)
        rows = _await_all(part, world, deadline)
        newest = next(iter(newest_first(home)), None)
        # Later than the one before, whatever the clocks of two hosts say.
        before = (read_mark(newest) or {}).get("saved_ns", 0) if newest is not None else 0
        mark = {"whichrank_checkpoint": 1, "step": step, "saved_ns": max(time.time_ns(), before + 1), "files": rows}
        _put(part / MARK, json.dumps(mark, indent=1).encode())
        for row in rows:
            (part / f"{row['name']}.json").unlink()
        _sync(part)
        final = _commit(part, home / _name(step))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _retain(home, keep, final)
    return final


def _follow(what: Any, home: Path, step: int, number: int, deadline: float) -> Path:
    """Any other rank: write where rank 0 has opened a place, until one of them is committed.

    A place may be left from an attempt that died: rank 0 takes it away, and this rank writes once more.
    """
    final = home / _name(step)
    written: set[Path] = set()
    while time.monotonic() < deadline:
        for part in _parts(home, _name(step)):
            if part not in written:
                try:
                    _write(what, part, number)
                    written.add(part)
                except FileNotFoundError:
                    if part.exists():
                        raise
        if any(not part.exists() and _came_from(final, part) for part in written):
            return final
        time.sleep(POLL_S)
    raise CheckpointError(
        f"rank 0 did not commit the checkpoint of step {step} in time",
        "Did every rank call save with sharded=True and the same step, and do they share this folder?",
    )


def _came_from(final: Path, part: Path) -> bool:
    with contextlib.suppress(OSError):
        return (final / "token").read_text(encoding="ascii") == part.name
    return False


def _write(what: Any, part: Path, number: int) -> None:
    """One rank's file, and beside it what it must be."""
    file = part / f"rank-{number:05}{_suffix(what)}"
    draft = part / f".{file.name}.{uuid.uuid4().hex}"
    with draft.open("wb") as stream:
        _fill(what, stream)
        stream.flush()
        os.fsync(stream.fileno())
    row = {"name": file.name, "bytes": draft.stat().st_size, "sha256": _digest(draft)}
    draft.replace(file)
    _put(part / f"{file.name}.json", json.dumps(row).encode())


def _fill(what: Any, stream: BinaryIO) -> None:
    if isinstance(what, bytes | bytearray | memoryview):
        stream.write(what)
    elif _is_writer(what):
        what(stream)
    else:
        try:
            torch: Any = import_module("torch")
        except ImportError as error:
            raise UsageError(
                f"can't save a {type(what).__name__} without torch", "Give bytes, or a function that writes."
            ) from error
        torch.save(what, stream)


def _suffix(what: Any) -> str:
    return ".bin" if isinstance(what, bytes | bytearray | memoryview) or _is_writer(what) else ".pt"


def _is_writer(what: Any) -> bool:
    # Not everything that can be called: a module of torch can, and is meant to be saved.
    return inspect.isroutine(what) or isinstance(what, partial)


def _await_all(part: Path, world: int, deadline: float) -> list[dict[str, Any]]:
    """What each rank wrote, in their order."""
    while True:
        rows = {path.name.partition(".")[0]: path for path in part.glob("rank-*.json")}
        missing = [rank for rank in range(world) if f"rank-{rank:05}" not in rows]
        if not missing:
            return [json.loads(rows[f"rank-{rank:05}"].read_bytes()) for rank in range(world)]
        if time.monotonic() > deadline:
            shown = ", ".join(map(str, missing[:16])) + (", …" if len(missing) > 16 else "")
            raise CheckpointError(
                f"of {world} ranks these did not write their part of the checkpoint: {shown}",
                "Must every rank save? If one is to, leave sharded out. Do all ranks share this folder?",
            )
        time.sleep(POLL_S)


def _commit(part: Path, final: Path) -> Path:
    """Put it in its place, at once; what is there of the same step goes."""
    _put(part / "token", part.name.encode("ascii"))
    old = final.with_name(f".{final.name}.{uuid.uuid4().hex}.gone")
    with contextlib.suppress(FileNotFoundError):
        final.rename(old)
    part.rename(final)
    _sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)
    return final


def _retain(home: Path, keep: int, final: Path) -> None:
    """The newest few stay; one that goes is gone as a whole."""
    for path in newest_first(home)[keep:]:
        if path != final:
            with contextlib.suppress(OSError):
                gone = path.with_name(f".{path.name}.{uuid.uuid4().hex}.gone")
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)


def _sweep(home: Path, name: str) -> None:
    """What died attempts left: of this step at once, of others when nobody can be at it any more."""
    old = time.time() - 2 * PATIENCE_S
    for path in _entries(home):
        with contextlib.suppress(OSError):
            left = path.name.startswith(".step-") and path.name.endswith((PART, ".gone"))
            if left and (path.name.startswith(f".{name}.") or path.stat().st_mtime < old):
                shutil.rmtree(path, ignore_errors=True)


def _parts(home: Path, name: str) -> Iterator[Path]:
    return (path for path in _entries(home) if path.name.startswith(f".{name}.") and path.name.endswith(PART))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _name(step: int) -> str:
    return f"step-{step:012}"


def _put(path: Path, data: bytes) -> None:
    """A small file, whole or not at all."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def _sync(folder: Path) -> None:
    """Names are on the disk too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    found = sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def _identity(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Who this process is: as it was told, as its process group has it, as the launcher has it, or alone."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        known = (dist.get_rank(), dist.get_world_size())
    else:
        texts = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        known = (int(texts[0]), int(texts[1])) if texts[0].isdigit() and texts[1].isdigit() else (0, 1)
    return (known[0] if rank is None else rank, known[1] if world_size is None else world_size)
