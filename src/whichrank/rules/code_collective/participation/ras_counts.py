"""NCCL's RAS counts differ between ranks of a job that is stuck.

## What it finds
A rank that has launched fewer (or, alone, more) operations of a communicator than the rest.

## Why it happens
The rank is held up before its next collective, or took another path and went ahead.

## How it decides
RAS counts launched operations, so the counts differ for a moment in every healthy job: alone they accuse nobody. This
rule speaks only when something else (a timeout that torch printed, stacks of waiting ranks, a second RAS report with
the same counts, the words of a person) says that the job stands still, and no dump or NCCL log tells more.

## Example
Three ranks have launched up to AllReduce operation 9, rank 1 up to 7; the stacks of the three are waiting.

## Fix
Look at the stack of that rank.

## Limits
The ranks that RAS lists by name are the few, not the guilty: often the victims, or the one that went ahead.
"""

from __future__ import annotations

from collections import defaultdict

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.ras import RasMismatch, RasReport
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.trials import said_category

CODE = "COLL118"
CAUSE = "collective-desync"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.ras:
        return NotEvaluated("a report of NCCL's RAS")
    said = said_category(case) == "hang" or bool(case.index.said_to_hang)
    stands = case.stands_still or _unchanged(case.ras) or said
    if case.troubles or case.goes_on or not stands:
        return []
    for report in case.ras:
        for mismatch in report.mismatches:
            found = _finding(case, report, mismatch)
            if found is not None:
                return [found]
    return []


def _unchanged(reports: list[RasReport]) -> bool:
    """Two reports of different moments with the same differences: nobody moved in between."""
    seen: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for report in reports:
        for mismatch in report.mismatches:
            seen[mismatch.comm_id, f"{mismatch.topic} {[(v.value, v.ranks_count) for v in mismatch.values]}"].add(
                report.time
            )
    return any(len(times - {None}) > 1 for times in seen.values())


def _finding(case: Case, report: RasReport, mismatch: RasMismatch) -> Finding | None:
    if mismatch.counts is None or len(mismatch.values) != 2:
        return None
    many, few = sorted(mismatch.values, key=lambda value: -value.ranks_count)
    ranks = tuple(sorted(case.people.of_ras(listed) for listed in few.listed))
    if not ranks or len(ranks) != few.ranks_count or few.ranks_count * 2 > many.ranks_count:
        return None
    behind = int(few.value) < int(many.value)
    words = (
        f"{mismatch.topic}: {many.ranks_count} ranks at operation {many.value}, "
        f"{wording.ranks_text(ranks)} at {few.value}"
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        kind="records",
        subject=Subject(ranks=ranks),
        message=(
            f"{wording.ranks_text(ranks).capitalize()} {'is behind' if behind else 'went ahead of'} the "
            f"others of its communicator ({words})."
        ),
        evidence=(Ref(report.source, f"line {mismatch.line}", words, ranks[0], case.people.host_of(ranks[0])),),
        victims=tuple(rank for rank in range(case.world) if rank not in ranks),
        alternatives=(
            Alternative("rank-stuck-in-user-code", "it may be blocked in host code")
            if behind
            else Alternative("conditional-collective", "it may have skipped an operation and gone ahead"),
        ),
        next=(NextStep("py-spy dump --nonblocking --pid PID", "the stack of that rank shows where it is", (), "none"),),
        fix=("Look at the stack of that rank, or at its flight-recorder dump.",),
    )
