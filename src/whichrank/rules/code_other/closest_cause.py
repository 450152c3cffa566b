"""Nothing proves a cause, but the words of the evidence come close to a known one.

## What it finds
Evidence that no rule can judge, with lines about trouble in words that one cause of the taxonomy has and the others
don't.

## Why it happens
A message of a library or a version that whichrank does not know, half a log, or a person's own words.

## How it decides
Only where all else leaves the cause unknown. The lines that speak of trouble are compared with the meaning, the fixes
and the known messages of every cause; rare words count most. A cause that is more than twice as close as the next one
is named, with little confidence. Otherwise the closest ones are listed.

## Example
    NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'

## Fix
That of the cause, as `whichrank explain CAUSE` tells it.

## Limits
Words are no proof: nobody is accused, and the confidence stays low.
"""

from __future__ import annotations

from typing import cast

from whichrank.facts.fixes import fix
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Alternative, Category, Finding, NotEvaluated, Severity, Subject
from whichrank.records.second_looks import ClosestCause
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.outcome import observed

CODE = "CODE210"
CAUSE = "unknown"

_CLEARLY = 2.2
"""How many times as close as the next cause."""
_CLOSE, _NAMED = 60.0, 250.0
"""What a line scores that shares a few rare words with a cause, and what is enough to name it."""
_SURE, _LISTED = 0.4, 0.12
_MOST = 3


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.closest or case.closest[0].score < _CLOSE:
        return NotEvaluated("lines that come close to a known cause, and no other verdict")
    first, rest = case.closest[0], [one for one in case.closest[1:] if one.score >= _CLOSE]
    next_best = case.closest[1].score if len(case.closest) > 1 else 0.0
    clear = first.score >= _NAMED and first.score > _CLEARLY * next_best
    others = rest if clear else [first, *rest]
    listed = tuple(Alternative(one.cause, _LISTED, f"its wording is close: {_quoted(one)}") for one in others[:_MOST])
    if not clear:
        return [_finding(first, "unknown", "info", 0.0, "Several known causes come close in words.", listed, case)]
    message = f"Nothing proves it, but the words come closest to {first.cause}: {_quoted(first)}."
    return [_finding(first, first.cause, "warning", _SURE, message, listed, case)]


def _quoted(one: ClosestCause) -> str:
    return f"“{one.ref.quote[:120]}”"


def _finding(
    first: ClosestCause,
    cause: str,
    severity: Severity,
    sure: float,
    message: str,
    listed: tuple[Alternative, ...],
    case: Case,
) -> Finding:
    usual = cast(Category, causes()[first.cause].usual_category)
    return Finding(
        code=CODE,
        cause=cause,
        category=observed(case) or (usual if cause != "unknown" else "unknown"),
        severity=severity,
        confidence=sure,
        subject=Subject(),
        message=message,
        evidence=(first.ref,),
        alternatives=listed,
        fix=(*fix(cause), f"Read whichrank explain {first.cause}, and look for what it says."),
    )
