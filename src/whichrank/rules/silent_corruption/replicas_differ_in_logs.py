"""Replicas that must be equal differ, by the words of the trainer.

## What it finds
Parameters that differ between data-parallel ranks.

## Why it happens
A collective that some ranks skipped, a seed that differs, a GPU that computes wrongly, or memory that was overwritten.

## How it decides
By the trainer's own comparison of hashes.

## Example
    AssertionError: Parameter hashes not matching across DP replicas

## Fix
Compare the hashes of all ranks: the odd one is where it arose. Go back to a checkpoint before.

## Limits
The message does not say which rank is the odd one.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SILE201"
CAUSE = "replica-divergence"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    fix=(
        "Compare the hashes rank by rank: the odd one is where it arose.",
        "Go back to a checkpoint before, and compare again after every step.",
    ),
    next=(
        NextStep(
            "whichrank guard …",
            "compares replicas while the job runs, and names the odd rank",
            ("replica-divergence",),
            "load",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "Replicas that must be equal differ: {what}.")
