"""The late rank says itself what holds it up.

## What it finds
Why a rank does not reach the collective that the others wait in, where the evidence shows only that it does not: a line
that this rank, or its host, printed before and that no other rank printed.

## Why it happens
One rank compiles again for a new shape, waits for a file server or a lock, writes a checkpoint, retries a read, skips a
step on its own, or has no more data. It says so in one quiet line; the others time out loudly.

## How it decides
Only where ranks are known or suspected to be late, and nothing else says by what. A rank that never printed what nearly
all others did is the late one, and so is one that counts (`12/40`) to an end that all others have reached. Lines that
differ from those of other ranks in more than numbers are compared with known messages and with the words for the parts
of a job; the last one counts.

## Example
    [rank11]: [__recompiles] Recompiling function forward in model.py:288

## Fix
That of the cause, as `whichrank explain CAUSE` tells it.

## Limits
The line may be older than the trouble, or have nothing to do with it: a stack of that rank settles it.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Alternative, Category, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.second_looks import OwnLine
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.outcome import observed

CODE = "SLOW114"
CAUSE = "unknown"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.own_lines:
        return NotEvaluated("lines that only the late ranks printed, and no other reason why they are late")
    last = case.own_lines[0]
    ranks = tuple(sorted({one.rank for one in case.own_lines if one.cause == last.cause}))
    others = dict.fromkeys(one.cause for one in case.own_lines if one.cause != last.cause)
    return [
        Finding(
            code=CODE,
            cause=last.cause,
            category=_category(case, last),
            severity="error",
            grade=Grade.SUPPORTS,
            subject=Subject(ranks=ranks),
            message=f"{wording.culprits_text(case, ranks).capitalize()} {_words(last)}: “{last.ref.quote[:120]}”.",
            evidence=tuple(dict.fromkeys(one.ref for one in case.own_lines if one.cause == last.cause))[:4],
            fix=fix(last.cause),
            alternatives=tuple(
                Alternative(cause, f"it said something of the kind too ({causes()[cause].meaning.rstrip('.')})")
                for cause in list(others)[:2]
            ),
            next=(NextStep("whichrank stacks", "the stack of that rank shows what it is in", (last.cause,), "none"),),
        )
    ]


def _category(case: Case, line: OwnLine) -> Category:
    if line.cause == "nan-origin":
        return "corruption"
    return "crash" if observed(case) == "crash" else "hang"


def _words(line: OwnLine) -> str:
    if line.cause == "nan-origin":
        return "alone reported values that turn a loss into NaN"
    if line.missing:
        return "did not get as far as the others, which all said"
    if line.behind:
        return "is still at what the others have finished"
    return f"is not where the others are, and {'its host' if line.of_host else 'it'} alone said before"
