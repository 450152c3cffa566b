"""Evaluating alone: a rank does not reach the collective that the others wait in.

## What it finds
A rank evaluates or generates on its own while the others wait for it.

## Why it happens
Evaluation under `if rank == 0` with a barrier behind it, an uneven evaluation set, generation of unbounded
length.

## How it decides
The rank does not come, and its stack is in a function of the training code named for evaluation, validation or
generation, outside of any collective.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 0 is in `evaluate` at `eval.py:40`, ranks 1-3 wait in `barrier #9`.

## Fix
Spread the evaluation over all ranks, or let the others go on instead of waiting at a barrier. If one rank must
evaluate alone, use a group with a timeout that fits the longest evaluation.

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW104"
CAUSE = "rank-stuck-in-evaluation"
FIX = (
    "Spread the evaluation over all ranks, or let the others go on instead of waiting at a barrier.",
    "If one rank must evaluate alone, use a group with a timeout that fits the longest evaluation.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "evaluation", CODE, CAUSE, "evaluating alone", FIX)
