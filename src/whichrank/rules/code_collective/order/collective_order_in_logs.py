"""torch's own check reports that ranks are in different operations.

## What it finds
Ranks of one group that call different collectives at the same time, by the words of
`TORCH_DISTRIBUTED_DEBUG=DETAIL` or of their watchdogs.

## Why it happens
A branch that some ranks take, a different order of two calls, threads that race, a rank that runs one call ahead.

## How it decides
The operation, or the sequence number, differs between two ranks. Over all ranks' messages the minority is the odd
one. Early versions print only what the rank itself is in: where that tells no difference, it is said that there is
one, and nobody is named. Without torch's check, and without dumps, the timeouts of the watchdogs are compared: at one
number of a group of all ranks they must be of one operation, and of sizes that one call can have. Ranks that wait
there came apart by a call that one of them left out or added more often than by two calls that were swapped.

## Example
`Rank 0 is running collective: … OpType=ALLREDUCE …, but Rank 3 is running collective: … OpType=BROADCAST`

## Limits
The check says that they differ, not whether one was skipped or two were swapped.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.collectives import FingerprintMismatch
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import statements

CODE = "COLL123"
CAUSE = "collective-order"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    alternatives=(
        ("conditional-collective", "one rank may have skipped or added a call"),
        ("collective-desync", "the check does not say how they came apart"),
    ),
)


_CAME_APART = replace(
    _CLAIM,
    cause="conditional-collective",
    category="hang",
    fix=fix("conditional-collective"),
    alternatives=(
        (CAUSE, "two calls may be swapped"),
        ("uneven-inputs", "a rank may have left its loop before the others"),
        ("collective-desync", "the timeouts do not say how they came apart"),
    ),
)
_ELSEWHERE = replace(
    _CAME_APART,
    cause="collective-desync",
    fix=fix("collective-desync"),
    alternatives=(
        ("uneven-inputs", "a rank may have left its loop before the others"),
        ("conditional-collective", "one rank may have skipped or added a call"),
        ("size-mismatch", "they may bring different sizes to the same call"),
    ),
)
_ONE_SIDE = replace(
    _CLAIM,
    alternatives=(
        ("conditional-collective", "one rank may have skipped or added a call"),
        ("size-mismatch", "they may bring different sizes to the same call"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = reported_mismatches.mismatches(case)
    if not told and (signs := statements.of_kind(case, FingerprintMismatch)):
        message = "Ranks are in different collectives, or bring different tensors; what the others are in is not told."
        return [building.found(case, _ONE_SIDE, signs, message, Grade.HINTS)]
    return [
        building.found(
            case,
            _ELSEWHERE if m.aspect == "call" else _CAME_APART if m.hangs else _CLAIM,
            m.signs,
            f"Ranks are in different operations of one group: {reported_mismatches.told(case, m)}.",
            Grade.SUPPORTS,
            m.ranks,
        )
        for m in told
        if m.aspect in ("op", "call", "seq") and not reported_mismatches.is_rank0_alone(m)
    ]
