"""Horovod's stall inspector names the ranks that did not bring a tensor.

## What it finds
Ranks that are missing from a collective of Horovod while others wait in it, by the report that its coordinator
prints once a minute.

## Why it happens
A rank skipped a part of the model or a broadcast at the start, took another branch, ran out of data, is held up
elsewhere, or is gone.

## How it decides
The newest report after which training did not go on. Versions print, per tensor, who is ready or who is missing, or,
per rank, what it is missing from. Who lacks every stalled tensor is named, where more ranks wait than are missing, or
a single one is. From a list of those that are ready, a number below the highest one that is not listed is missing.
Where two groups each brought what the other lacks, the smaller one left the common path. Other ranks that each lack
something else wait for one another: then nobody is named.

## Example
`allreduce.layer4.weight [missing ranks: 3]`

## Fix
Look at what the missing rank does instead: its stack, then its log. Let every rank bring the same tensors in each step.

## Limits
A wait is reported after 60 seconds (`HOROVOD_STALL_CHECK_TIME_SECONDS`), also where a slow rank comes later. The last
rank of a job can't be told from the list of those that are ready unless the size of the job is known.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.collectives import StallReport
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "COLL127"
CAUSE = "collective-desync"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Find out what the missing rank does instead of bringing that tensor: its stack first, then its log.",
        "Let every rank run every branch and as many batches as the others: in each step all bring the same tensors.",
    ),
    alternatives=(
        ("conditional-collective", "it may have skipped the call"),
        ("uneven-inputs", "it may have run out of data"),
    ),
    next=(wording.STACK_OF_THE_MISSING,),
)
_CROSSED = replace(
    _CLAIM,
    alternatives=(
        ("collective-order", "they may bring the same tensors in different orders"),
        ("conditional-collective", "some may have skipped a call"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.of_kind(case, StallReport)
    report = signs[-1].event if signs else None
    if not isinstance(report, StallReport):
        return []
    missing, waiting = _sides(case, report)
    if missing and (len(missing) == 1 or len(missing) < waiting):
        message = f"{wording.ranks_text(missing).capitalize()} did not bring a tensor with which the others wait."
        return [building.found(case, _CLAIM, signs[::-1], message, Grade.SUPPORTS, missing)]
    if report.apart:
        verb = "brings" if len(report.apart) == 1 else "bring"
        message = f"{wording.ranks_text(report.apart).capitalize()} {verb} other tensors than all others."
        return [building.found(case, _CROSSED, signs[::-1], message, Grade.SUPPORTS, report.apart)]
    if report.some:
        message = f"{wording.ranks_text(report.some).capitalize()} wait for one another with other tensors."
        return [building.found(case, _CROSSED, signs[::-1], message, Grade.HINTS)]
    few = f"; {wording.ranks_text(missing)} did not" if missing else ""
    message = f"Some ranks wait with a tensor that others did not bring{few}."
    return [building.found(case, _CROSSED, signs[::-1], message, Grade.HINTS)]


def _sides(case: Case, report: StallReport) -> tuple[tuple[int, ...], int]:
    """Who lacks every tensor, and how many are known to wait."""
    missing, ready = report.missing, report.ready
    size = max((case.world, *(rank + 1 for rank in (*missing, *report.some, *ready))))
    if ready:
        missing = tuple(rank for rank in range(size) if rank not in set(ready))
    return missing, size - len(missing)
