"""A value that was the same on all ranks became another one on some: their replica went its own way.

## What it finds
Numbers in the lines that all ranks print alike, which changed from round to round and were the same on all ranks to the
last digit, and that one rank, or few, say differently since some round.

## Why it happens
A scheduler, a clipping or a skipped update that a rank decides on its own data, parameters that are changed on one
rank, a GPU that computed one update wrongly.

## How it decides
Only where nothing else says that the job failed. All ranks must have said the same value, with four digits or more, in
three rounds in which it changed; since then the same ranks, fewer than half, say another one in every round, and the
others agree with each other. Losses and times differ from the start, and are never compared.

## Example
    rank 0: step 25 val 0.83 weights 10.258334
    rank 3: step 25 val 0.90 weights 10.086927

## Fix
Let all ranks take the same decision: reduce what the scheduler looks at, or decide on rank 0 and broadcast.

## Limits
It tells where the replicas are first seen apart, not what changed them.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "SILE208"
CAUSE = "replica-divergence"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.parted_values:
        return NotEvaluated("values that were the same on all ranks at first, in a job that nothing else calls wrong")
    first = case.parted_values[0]
    who = wording.culprits_text(case, first.ranks)
    message = (
        f"{who[0].upper()}{who[1:]} parted from the other replicas: {first.name} was the same on all ranks "
        f"{first.round} times, then {first.theirs} there and {first.usual} on the others."
    )
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="corruption",
            severity="error",
            grade=Grade.SUPPORTS,
            kind="records",
            subject=Subject(ranks=first.ranks),
            message=message,
            evidence=first.refs,
            alternatives=(
                Alternative("gpu-computes-wrong", "a GPU that computed one update wrongly leaves the same trace"),
            ),
            fix=fix(CAUSE),
            next=(NextStep("whichrank run --guard -- torchrun …", "names the tensor and the step", (CAUSE,), "ends"),),
        )
    ]
