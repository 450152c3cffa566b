"""The newest whole checkpoint in a folder, whoever wrote it; those that are not whole are named with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whichrank.run.resume import checkpoint_files as files
from whichrank.run.resume import checkpoint_layouts as layouts
from whichrank.worker import checkpoint as own

DEEP = 4
"""Folders within folders that are searched: Lightning has lightning_logs/version_0/checkpoints."""
MOST = 10_000
TOLD = 20
_POINTERS = ("latest", "latest_checkpointed_iteration.txt")
_PLAIN = tuple(ending for ending in files.KNOWN if ending != ".distcp")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint: a file or a folder."""

    path: Path
    kind: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """One that is newer and not whole."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Found:
    newest: Checkpoint | None = None
    skipped: tuple[Skipped, ...] = ()


def find(folder: Path) -> Found:
    """Look from the newest to the oldest, until one is whole."""
    candidates = list(_candidates(folder.absolute()))
    drafts = [path for path in candidates if files.is_draft(path.name) or _is_ours(path)]
    ordered = _newest_first([path for path in candidates if path not in drafts])
    skipped: list[Skipped] = []
    taken = None
    for number, path in enumerate(ordered):
        why = _one_rank(path) or layouts.problem(path) or _not_pointed_at(path, ordered)
        why = why or _lacking(path, ordered[number + 1 :])
        if not why:
            taken = path
            break
        skipped.append(Skipped(path, why))
    # A draft is told of only where it is younger than what is taken.
    since = files.changed_ns(taken) if taken is not None else 0
    unfinished = [Skipped(path, layouts.problem(path)) for path in drafts if files.changed_ns(path) >= since]
    return Found(_told(taken) if taken is not None else None, tuple((unfinished + skipped)[:TOLD]))


def _told(path: Path) -> Checkpoint:
    mark = own.read_mark(path) if path.is_dir() else None
    number = layouts.step_of(path.name)
    step = mark["step"] if mark else number[1] if number is not None and number[0] == "step" else None
    return Checkpoint(path, layouts.kind_of(path), step)


def _candidates(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Files and folders that are checkpoints, whole or not."""
    entries = layouts.listing(folder)[:MOST]
    many = any(entry.is_dir() and layouts.step_of(entry.name) and layouts.holds_some(entry) for entry in entries)
    if not many and depth == 0 and _is_one_itself(folder):
        yield folder
        return
    for entry in entries:
        if entry.is_dir():
            if _is_ours(entry) or (not entry.name.startswith(".") and layouts.is_checkpoint(entry)):
                yield entry
            elif depth < DEEP and not entry.name.startswith("."):
                yield from _candidates(entry, depth + 1)
        elif not many and _is_plain(entry):
            yield entry


def _is_one_itself(folder: Path) -> bool:
    """A folder that was given and holds one checkpoint, written over again and again."""
    marks = (".metadata", "trainer_state.json", own.MARK)
    return any((folder / mark).exists() for mark in marks) or any(
        entry.suffix == ".distcp" or entry.name.endswith(".index.json") for entry in layouts.listing(folder)
    )


def _is_ours(folder: Path) -> bool:
    return folder.name.startswith(".step-") and folder.name.endswith(own.PART)


def _is_plain(path: Path) -> bool:
    """A file with a known ending, or the draft of one."""
    name = path.name
    if files.is_draft(name):
        return any(ending in name for ending in _PLAIN)
    return path.suffix in _PLAIN and not name.startswith(".")


def _newest_first(paths: list[Path]) -> list[Path]:
    """Our own by the time that they carry; others by their number if all count the same, else by their age."""
    ours = {path: mark["saved_ns"] for path in paths if path.is_dir() and (mark := own.read_mark(path))}
    changed = {path: ours.get(path) or files.changed_ns(path) for path in paths}
    numbers = {path: layouts.step_of(path.name) for path in paths}
    kinds = {number[0] if number is not None else None for number in numbers.values()}
    if not ours and len(kinds) == 1 and None not in kinds:
        return sorted(paths, key=lambda path: (numbers[path], changed[path]), reverse=True)
    return sorted(paths, key=lambda path: changed[path], reverse=True)


def _one_rank(path: Path) -> str:
    if path.is_dir() or not re.search(r"rank[-_]?\d", path.name, re.IGNORECASE):
        return ""
    return "it is the file of one rank, which can't be handed to all: save them in a folder for each step"


def _not_pointed_at(path: Path, ordered: list[Path]) -> str:
    """DeepSpeed and Megatron write the name of the newest checkpoint last, beside it."""
    for name in _POINTERS:
        try:
            with (path.parent / name).open(encoding="utf-8", errors="replace") as stream:
                told = stream.read(4096).strip()
        except OSError:
            continue
        meant = f"iter_{int(told):07}" if told.isdigit() and len(told) < 12 else Path(told).name
        pointed = path.parent / meant
        if not meant or pointed not in ordered or ordered.index(path) >= ordered.index(pointed):
            continue
        return f"'{name}' beside it still names {meant}: its save was not finished"
    return ""


def _lacking(path: Path, older: list[Path]) -> str:
    """Compared with the one before in the same place, if that is whole."""
    if not path.is_dir() or own.read_mark(path):
        return ""
    other = next((each for each in older if each.parent == path.parent and each.is_dir()), None)
    return layouts.lacks(path, other) if other is not None and not layouts.problem(other) else ""
