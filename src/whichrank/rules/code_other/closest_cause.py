"""Nothing proves a cause, but the words of the evidence come close to a known one.

## What it finds
Evidence that no rule can judge, with lines about trouble in words that one cause of the taxonomy has and the others
don't.

## Why it happens
A message of a library or a version that whichrank does not know, half a log, or a person's own words.

## How it decides
Only where all else leaves the cause unknown. The words of the evidence are compared with the meaning, the fixes and the
known messages of every cause, and with the words of reports whose cause became known; rare words count most. The
closest cause is named, with little confidence, if the words tell much of it and little of any other; and with less
where a person complains. Otherwise the closest ones are listed.

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
from whichrank.model import grades
from whichrank.model.findings import Alternative, Category, Finding, Grade, NotEvaluated, Severity, Subject
from whichrank.records.second_looks import STATED, ClosestCause
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.outcome import COUNTED_ON, observed

CODE = "CODE210"
CAUSE = "unknown"

_CLEARLY = 1.2
"""How many times as close as the next cause."""
_WORTH, _NAMED, _MUCH = 2.0, 5.0, 7.0
"""What words must tell for a cause to be listed, to be named, and to be named rather surely (some rare ones go with
it)."""
_MOST = 3
_STOPPED = {"hang": "stopped", "crash": "stopped"}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    seen = observed(case) if case.closest else None
    near = [one for one in case.closest if one.told >= _WORTH and _fits(one.cause, seen) and not _survived(case, one)]
    if seen is None and not case.complaints:  # nobody says that numbers are wrong
        near = [o for o in near if o.told >= STATED or causes()[o.cause].usual_category != "corruption"]
    if not near:
        return NotEvaluated("lines that come close to a known cause, and no other verdict")
    first, rest = near[0], near[1:]
    clearly = first.told >= _MUCH and (not rest or first.score >= _CLEARLY * rest[0].score)
    named = clearly or (first.told >= _NAMED and bool(case.complaints))
    others = rest if named else [first, *rest]
    listed = tuple(Alternative(one.cause, f"its wording is close: {_quoted(one)}") for one in others[:_MOST])
    if not named:
        told = "Several known causes come" if len(near) > 1 else "A known cause comes"
        return [_finding(first, "unknown", "info", f"{told} close in words.", listed, case, "words")]
    message = f"Nothing proves it, but the words come closest to {first.cause}: {_quoted(first)}."
    return [_finding(first, first.cause, "warning", message, listed, case, "reports" if clearly else "words")]


def _fits(cause: str, seen: str | None) -> bool:
    """Whether a job with that cause can look so: what stops a job does not slow it down, and the other way round."""
    usual = causes()[cause].usual_category
    return usual == "config" or _STOPPED.get(usual, usual) == _STOPPED.get(seen or usual, seen or usual)


def _survived(case: Case, one: ClosestCause) -> bool:
    """Whether the job counted on behind the line: then it is not what stopped it, or made its numbers wrong."""
    if causes()[one.cause].usual_category not in ("hang", "crash", "corruption"):
        return False
    return any(
        progress.source == one.ref.source
        and len(set(progress.step[(progress.line > one.ref.line) & (progress.step >= 0)].tolist())) >= COUNTED_ON
        for progress in case.progress
    )


def _category(first: str, named: str, listed: tuple[Alternative, ...]) -> Category:
    """That of the cause that is named, or that most of the listed ones have."""
    usual = causes()[first].usual_category
    alike = sum(causes()[one.cause].usual_category == usual for one in listed)
    return cast(Category, usual if named != "unknown" or 2 * alike > len(listed) else "unknown")


def _quoted(one: ClosestCause) -> str:
    return f"“{one.ref.quote[:120]}”"


def _finding(
    first: ClosestCause,
    cause: str,
    severity: Severity,
    message: str,
    listed: tuple[Alternative, ...],
    case: Case,
    kind: grades.Kind,
) -> Finding:
    return Finding(
        code=CODE,
        cause=cause,
        category=observed(case) or _category(first.cause, cause, listed),
        severity=severity,
        grade=Grade.HINTS,
        kind=kind,
        subject=Subject(),
        message=message,
        evidence=(first.ref, *([case.slowed] if case.slowed is not None else [])),
        alternatives=listed,
        fix=(*fix(cause), f"Read whichrank explain {first.cause}, and look for what it says."),
    )
