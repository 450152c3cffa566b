"""What `reduce` does: read a node's evidence where it lies, and keep what a verdict needs of it in one small file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whichrank.evidence.intake import collect
from whichrank.evidence.summary.file import Part, Summary, mark_of, pack
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.reading import outcomes_of
from whichrank.model.contracts import Item, Reading
from whichrank.records.dump import Dump
from whichrank.records.events.base import Event
from whichrank.records.network import TcpSocket
from whichrank.records.stack import ProcessStack

Progress = Callable[[str, int, int], None]
_EACH = 4096
"""What a file costs beside its bytes."""


@dataclass(frozen=True, slots=True)
class Reduced:
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
            parts.append(Part(item, readings, mark_of(item)))
    summary = Summary(parts, [*(intake.refused if part[0] == 0 else ()), *noted])
    ranks = {
        record.rank
        for part in parts
        for _, reading in part.readings
        for record in reading.records
        if isinstance(record, Dump | ProcessStack | TcpSocket | Event) and record.rank is not None
    }
    return Reduced(pack(summary), len(parts), sum(part.item.size for part in parts), len(ranks))


def _part(items: Sequence[Item], number: int, count: int) -> list[Item]:
    """Neighbours stay together, and parts are about equally large."""
    total, before, found = sum(item.size + _EACH for item in items), 0, []
    for item in items:
        if before * count // max(1, total) == number:
            found.append(item)
        before += item.size + _EACH
    return found
