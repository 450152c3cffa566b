"""The stacks of all ranks from files, merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from whichrank.evidence.intake import collect
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.reading import Progress, outcomes_of
from whichrank.model.views import StackReport, Unseen
from whichrank.records.stack import ProcessStack
from whichrank.timeline.case import build_case
from whichrank.timeline.job_state.stack_tree import chosen, merged


def stacks_of_files(
    paths: Sequence[Path | Literal["-"]], *, jobs: int | None = None, progress: Progress | None = None
) -> StackReport:
    """The newest stack of every rank that files, folders or bundles hold; logs beside them say whose they are."""
    with collect(paths) as intake:
        outcomes, *_ = outcomes_of(intake.items, jobs=jobs, progress=progress)
    records = []
    for _, outcome in outcomes:
        if not isinstance(outcome, Failure):
            records += [record for _, reading in outcome for record in reading.records]
    case = build_case(records)
    return report([*case.stacks.items(), *((None, stack) for stack in case.unplaced)], ())


def report(found: Sequence[tuple[int | None, ProcessStack]], missing: Sequence[Unseen]) -> StackReport:
    """The tree, and whose stacks are in it."""
    usable = [(rank, stack) for rank, stack in found if chosen(stack) is not None]
    empty = [Unseen(stack.pid, rank, "no frame in it") for rank, stack in found if chosen(stack) is None]
    return StackReport(
        merged(usable),
        tuple(sorted({rank for rank, _ in usable if rank is not None})),
        tuple(stack.pid or 0 for rank, stack in usable if rank is None),
        (*missing, *empty),
    )
