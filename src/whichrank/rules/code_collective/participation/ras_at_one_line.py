"""RAS counts differ between ranks whose stacks all stand at one line.

## What it finds
Every rank waits at the same line of the training code, one communicator has different counts on its ranks, and another
one has the same counts on all of them.

## Why it happens
A rank called a collective of that communicator that the others did not call, or left one out: an early return, a cache
that only one rank had to fill. Where two communicators differ and the ranks split into halves, the halves use the two
groups in different orders.

## How it decides
In a job that moves, ranks at one line have launched the same operations, or one of them is ahead in all communicators.
Here they agree in one and differ in another, so they came to that line by different paths. Stacks and RAS may be of
different moments, so it is a hint.

## Example
Ranks 0 to 2 are at `train.py:106 in main`; RAS: `2 ranks have launched up to operation 1`, `Rank 1 has launched up to
operation 2`.

## Fix
Look for the call on that communicator that stands behind a condition, a cache or an early return.

## Limits
RAS does not count sends and receives, and lists ranks by name only where they are few.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Category, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.ras import RasMismatch, RasReport
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import stack_ref

CODE = "COLL145"
CAUSE = "conditional-collective"
CATEGORY: Category = "hang"
_GROUP_ORDER = "process-group-order"
_FIXES = {
    CAUSE: "Look for a call on that communicator that stands behind a condition, a cache or an early return.",
    _GROUP_ORDER: "Use the groups in the same order on every rank, whatever its data are.",
}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.ras:
        return NotEvaluated("a report of NCCL's RAS")
    if not case.stacks:
        return NotEvaluated("stacks of all ranks")
    if case.troubles or case.goes_on or not _at_one_line(case):
        return []
    for report in case.ras:
        counted = [m for m in report.mismatches if m.counts is not None and len(m.values) == 2]
        halves = [m for m in counted if m.values[0].ranks_count == m.values[1].ranks_count]
        if not _agree_elsewhere(report):
            continue  # ahead in all communicators: only a step further
        if len(halves) > 1:
            return [_crossed(case, report, halves)]
        if len(counted) == 1 and (found := _odd(case, report, counted[0])) is not None:
            return [found]
    return []


def _at_one_line(case: Case) -> bool:
    """Whether the main threads of all ranks came by one way to one line."""
    from whichrank.timeline.job_state.activity import way  # many patterns: only where there is a stack

    ways = {way(stack) for stack in case.stacks.values()}
    return len(case.stacks) >= max(case.world, 2) and len(ways) == 1 and ways != {()}


def _agree_elsewhere(report: RasReport) -> bool:
    """Whether the ranks of another communicator have launched the same."""
    differing = {mismatch.comm_id for mismatch in report.mismatches}
    listed = any(len(comm.ranks) > 1 and comm.comm_id not in differing for comm in report.comms)
    return listed or any(group.status == "RUNNING" and not group.errors for group in report.groups)


def _odd(case: Case, report: RasReport, mismatch: RasMismatch) -> Finding | None:
    many, few = sorted(mismatch.values, key=lambda value: -value.ranks_count)
    ranks = tuple(sorted(case.people.of_ras(one) for one in few.listed))
    if not ranks or len(ranks) != few.ranks_count or few.ranks_count >= many.ranks_count:
        return None
    did = "called" if int(few.value) > int(many.value) else "left out"
    who = wording.ranks_text(ranks)
    words = f"{mismatch.topic}: {many.ranks_count} ranks at operation {many.value}, {who} at {few.value}"
    return _finding(
        case,
        CAUSE,
        Subject(ranks=ranks),
        f"{who.capitalize()} {did} {mismatch.topic} operations of one communicator that the "
        f"others did not ({words}); all are at one line now.",
        (Ref(report.source, f"line {mismatch.line}", words, ranks[0], case.people.host_of(ranks[0])),),
    )


def _crossed(case: Case, report: RasReport, halves: list[RasMismatch]) -> Finding:
    quotes = tuple(
        Ref(
            report.source,
            f"line {mismatch.line}",
            ", ".join(f"{v.ranks_count} ranks at {mismatch.topic} operation {v.value}" for v in mismatch.values),
        )
        for mismatch in halves[:2]
    )
    return _finding(
        case,
        _GROUP_ORDER,
        Subject(ranks=tuple(sorted(case.stacks))),
        f"Half of the ranks have used one communicator and not the other, where all are at one line "
        f"({quotes[0].quote}): the halves use the two groups in different orders.",
        quotes,
    )


def _finding(case: Case, cause: str, subject: Subject, message: str, quotes: tuple[Ref, ...]) -> Finding:
    first = min(case.stacks)
    return Finding(
        code=CODE,
        cause=cause,
        category=CATEGORY,
        severity="error",
        grade=Grade.HINTS,
        kind="records",
        subject=subject,
        message=message,
        evidence=(*quotes, stack_ref(case, first)),
        victims=tuple(rank for rank in case.stacks if rank not in subject.ranks),
        alternatives=(Alternative("collective-desync", "the counts and the stacks may be of different moments"),),
        next=(
            NextStep(
                "whichrank env --for debug", "settings that record every collective, for the next run", (), "none"
            ),
        ),
        fix=(_FIXES[cause],),
    )
