"""A NaN or infinity began on one rank, by the local losses and gradients of all ranks.

## What it finds
The rank whose loss or local gradient was the first that was not finite, at which step, and in which parameter.

## Why it happens
A bad sample or a division by zero on one rank, an overflow on its path, a faulty GPU. The reduction of the gradients
carries it to all ranks within the same step, so that logs and checks behind it show it everywhere.

## How it decides
`whichrank run --guard` looks at gradients before they are reduced. The first step that was taken with values that are
not finite counts; a loss alone that is finite again within three steps does not. Where the same micro-batch, computed
again, gave another result, a rule on hardware says more. Ranks that were not finite while others still were are the
origin; where all were at once, nobody is named. Steps that a gradient scaler skips don't count.

## Example
    6 of 6 local gradients nan at step 812     (rank 5; finite on the others)

## Fix
Look at the batch that this rank had at that step. Go back to a checkpoint from before.

## Limits
Where gradients are looked at every few steps only (very short steps), the loss of every step is what is left.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.timeline.case import Case
from whichrank.timeline.guard.wrong import Wrong

CODE = "SILE302"
CAUSE = "nan-origin"

_HARDWARE = Alternative("gpu-computes-wrong", "if it stays with the GPU and not with the data, suspect the hardware")
_TEST = NextStep("dcgmi diag -r 4", "on that GPU: tells whether it computes rightly", ("gpu-computes-wrong",), "load")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    found = guard_findings.wrongs(case, "nan")
    if isinstance(found, NotEvaluated):
        return found
    return [_finding(case, wrong) for wrong in found]


def _finding(case: Case, wrong: Wrong) -> Finding:
    value = next(iter(wrong.values.values()), "nan")
    batch = wrong.detail.get("batch")
    in_batch = isinstance(batch, str)
    where = f" in {wrong.module}" if wrong.module else ""
    if wrong.odd:
        message = (
            f"{guard_findings.who(wrong)} had the first {wrong.tensor} that is {value}{where}, at step {wrong.step}"
        )
        message += f"; its batch holds {batch} already." if in_batch else ", before it was reduced into all others."
    else:
        message = f"The {wrong.tensor} of all ranks turned {value} at the same step {wrong.step}{where}."
    samples = "Look at the samples of that batch: they hold the value themselves."
    path = "Look at the batch of this rank at that step, and at divisions, logarithms and overflows on its path."
    sure = wrong.odd and wrong.detail["lasting"] and not guard_findings.replayed_otherwise(case, wrong)
    return guard_findings.found(
        case,
        wrong,
        CODE,
        CAUSE,
        message,
        Grade.PROVES if sure else Grade.SUPPORTS,
        (guard_findings.go_back(case, wrong), samples if in_batch else path),
        gpu=True,
        alternatives=() if in_batch else (_HARDWARE,),
        next=() if in_batch else (_TEST,),
    )
