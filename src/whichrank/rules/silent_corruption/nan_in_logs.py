"""A trainer says which rank had the first NaN.

## What it finds
A loss or gradient of one rank that was not finite before it was reduced, in the trainer's own words; or a loss scale
that is at its minimum while gradients still overflow.

## Why it happens
A batch with bad values, an overflow on that path, or a GPU that computes wrongly. Behind the reduction every rank has
it.

## How it decides
By the checks that trainers make on every rank before the reduction; the rank that the message names is the origin.
A loss scale at its minimum tells that values are not finite, and nothing of a rank: nobody is named. Steps that a
dynamic loss scale skips say nothing by themselves.

## Example
    Rank 12: found NaN in local forward loss calculation. Device: 4, node: gpu-12

## Fix
Look at the batch of that rank and at divisions and logarithms on its path. Go back to a checkpoint before.

## Limits
If several ranks report at once, the data or the learning rate is likelier than one rank.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages

CODE = "SILE203"
CAUSE = "nan-origin"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    blames="gpu",
    fix=(
        "Look at the batch that this rank had at that step, and at divisions, logarithms and overflows on its path.",
        "Go back to a checkpoint before that step; if it stays with the GPU and not with the data, test the GPU.",
    ),
    next=(NextStep("dcgmi diag -r 4", "on that GPU: tells whether it computes rightly", ("nan-origin",), "load"),),
)


_OVERFLOW = Claim(
    CODE,
    CAUSE,
    category="corruption",
    fix=(
        "Look at the losses and batches before the first step that was skipped: a value that is not finite, or a jump.",
        "Use bfloat16 in place of float16, a lower learning rate or a longer warm-up, and gradient clipping.",
    ),
)
_SCALE = "loss-scale-minimum"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told = known_messages.of_cause(case, CAUSE)
    if told and all(s.id == _SCALE for s in told):
        return building.judged(case, _OVERFLOW, "Gradients overflow at the smallest loss scale: {what}.", found=told)
    return building.judged(case, _CLAIM, "{who} had values that are not finite before they were reduced: {what}.")
