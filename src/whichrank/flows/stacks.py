"""The stacks of all ranks from files, merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from whichrank.evidence.intake import collect
from whichrank.fleet.local import Failure
from whichrank.flows.diagnose.reading import Progress, outcomes_of
from whichrank.model.views import StackReport, Unseen
from whichrank.records.stack import ProcessStack
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.stack_tree import chosen, merged


def stacks_of_files(paths: Sequence[Path | Literal["-"]], *, progress: Progress | None = None) -> StackReport:
    """The newest stack of every rank that files, folders or bundles hold; logs beside them say whose they are."""
    with collect(paths) as intake:
        outcomes, *_ = outcomes_of(intake.items, progress=progress)
    records = []
    for _, outcome in outcomes:
        if not isinstance(outcome, Failure):
            records += [record for _, reading in outcome for record in reading.records]
    case = build_case(records)
    return report(of_case(case), ())


def of_case(case: Case) -> list[tuple[int | None, ProcessStack]]:
    """The stack of every rank, and the last one of every other process.

    Files of faulthandler don't say whose they are: each file is one process, with a number below 0 for its pid."""
    others: dict[int | str, ProcessStack] = {}
    for stack in case.unplaced:
        others[stack.pid or stack.source] = stack
    numbered = ((None, stack if stack.pid else replace(stack, pid=-at)) for at, stack in enumerate(others.values(), 1))
    return [*case.stacks.items(), *numbered]


def _told(pid: int | None) -> int | None:
    return pid if pid is not None and pid > 0 else None


def report(found: Sequence[tuple[int | None, ProcessStack]], missing: Sequence[Unseen]) -> StackReport:
    """The tree, and whose stacks are in it."""
    usable = [(rank, stack) for rank, stack in found if chosen(stack) is not None]
    empty = [Unseen(_told(stack.pid), rank, "no frame in it") for rank, stack in found if chosen(stack) is None]
    return StackReport(
        merged(usable),
        tuple(sorted({rank for rank, _ in usable if rank is not None})),
        tuple(stack.pid or 0 for rank, stack in usable if rank is None),
        (*missing, *empty),
    )
