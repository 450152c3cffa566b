"""A trainer repeated a step and got another result.

## What it finds
A GPU that gives other results for the same work.

## Why it happens
Silent data corruption: a defect of the GPU or its memory that no error reports.

## How it decides
By the trainer's own repetition of the step, on the same or on another GPU.

## Example
    Rank 3, node gpu-12, device 3: unexpected result is not reproducible within the tolerance

## Fix
Take the GPU out and test it. Go back to the last checkpoint that was written before.

## Limits
A kernel that is not deterministic repeats no result either.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SILE202"
CAUSE = "gpu-computes-wrong"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    blames="gpu",
    fix=(
        "Take that GPU out of the job and run dcgmi diag -r 4 on it.",
        "Go back to a checkpoint before that step.",
    ),
    next=(
        NextStep("dcgmi diag -r 4", "on that GPU: tells whether it computes rightly", ("gpu-computes-wrong",), "load"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} got another result for the same work: {what}.")
