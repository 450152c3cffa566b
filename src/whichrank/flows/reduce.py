"""What `reduce` does: read a node's evidence where it lies, and keep what a verdict needs of it in one small file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whichrank.evidence.intake import collect
from whichrank.evidence.summary.file import Part, Summary, mark_of, pack
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.reading import outcomes_of
from whichrank.model.contracts import Reading
from whichrank.records.dump import Dump
from whichrank.records.stack import ProcessStack

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Reduced:
    """The summary, and what it was made from."""

    data: bytes
    files: int
    size: int
    """Of the files together."""
    ranks: int


def reduce(
    paths: Sequence[Path], *, node: str = "", jobs: int | None = None, progress: Progress | None = None
) -> Reduced:
    """Everything below the paths as a summary. `node` tells the files of one node from those of the others."""
    with collect(list(paths)) as intake:
        items = [replace(item, label=f"nodes/{node}/{item.label}") if node else item for item in intake.items]
        outcomes, noted, _ = outcomes_of(items, jobs=jobs, progress=progress)
        parts = []
        for item, outcome in outcomes:
            readings = outcome if not isinstance(outcome, Failure) else [("", Reading([], "unusable", outcome.message))]
            parts.append(Part(item, readings, mark_of(item)))
    summary = Summary(parts, [*intake.refused, *noted])
    ranks = {
        record.rank
        for part in parts
        for _, reading in part.readings
        for record in reading.records
        if isinstance(record, Dump | ProcessStack) and record.rank is not None
    }
    return Reduced(pack(summary), len(parts), sum(part.item.size for part in parts), len(ranks))
