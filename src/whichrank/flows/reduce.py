"""What `reduce` does: read a node's evidence where it lies, and keep what a verdict needs of it in one small file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whichrank.evidence.intake import collect
from whichrank.evidence.summary.file import Part, Summary, mark_of, pack
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.kept_text import Kept, telling_lines, whole_texts
from whichrank.flows.diagnose.reading import Outcome, outcomes_of
from whichrank.model.contracts import Item, Reading
from whichrank.records.dump import Dump
from whichrank.records.events.base import Event
from whichrank.records.network import TcpSocket
from whichrank.records.stack import ProcessStack

Progress = Callable[[str, int, int], None]
_EACH = 4096
"""What a file costs beside its bytes."""
_PER_RANK = 4096
"""Bytes of a summary: so much it may take, with texts."""


class Reduced(Struct, frozen=True):
    """The summary, and what it was made from."""

    data: bytes
    files: int
    size: int
    """Of the files together."""
    ranks: int


def reduce(
    paths: Sequence[Path],
    *,
    node: str = "",
    jobs: int | None = None,
    progress: Progress | None = None,
    part: tuple[int, int] = (0, 1),
) -> Reduced:
    """Everything below the paths as a summary. `node` tells the files of one node from those of the others; `part` is
    which part, of how many, of the files."""
    with collect(list(paths)) as intake:
        own = intake.items if part[1] == 1 else _part(intake.items, *part)
        items = [replace(item, label=f"nodes/{node}/{item.label}") if node else item for item in own]
        outcomes, noted, _ = outcomes_of(items, jobs=jobs, progress=progress)
        parts = []
        for item, outcome in outcomes:
            readings = outcome if not isinstance(outcome, Failure) else [("", Reading([], "unusable", outcome.message))]
            parts.append(Part(item, readings, mark_of(item) if item.kept is None else b""))
        summary = Summary(parts, [*(intake.refused if part[0] == 0 else ()), *noted])
        ranks = _ranks(parts)
        data = _packed(summary, outcomes, _PER_RANK * max(1, len(ranks)))
    return Reduced(data, len(parts), sum(part.item.size for part in parts), len(ranks))


def _packed(summary: Summary, outcomes: Sequence[Outcome], most: int) -> bytes:
    """With all texts where that is not much. Otherwise with the lines that tell most: where dumps are there, these say
    why a job hangs, and words are not asked."""
    if (whole := whole_texts(outcomes)) is not None and len(data := pack(_with(summary, whole))) <= most:
        return data
    dumps = any(isinstance(record, Dump) for part in summary.parts for _, r in part.readings for record in r.records)
    return pack(summary if dumps else _with(summary, telling_lines(outcomes)))


def _with(summary: Summary, texts: Kept) -> Summary:
    parts = [replace(part, text=texts.get((part.item.label, part.item.job), b"")) for part in summary.parts]
    return replace(summary, parts=parts)


def _ranks(parts: Sequence[Part]) -> set[int]:
    return {
        record.rank
        for part in parts
        for _, reading in part.readings
        for record in reading.records
        if isinstance(record, Dump | ProcessStack | TcpSocket | Event) and record.rank is not None
    }


def _part(items: Sequence[Item], number: int, count: int) -> list[Item]:
    """Neighbours stay together, and parts are about equally large."""
    total, before, found = sum(item.size + _EACH for item in items), 0, []
    for item in items:
        if before * count // max(1, total) == number:
            found.append(item)
        before += item.size + _EACH
    return found
