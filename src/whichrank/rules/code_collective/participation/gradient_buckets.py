"""torch's own check reports gradient buckets of different size: ranks ran different parts of the model.

## What it finds
Ranks that reduce flat gradient buffers of different length at the same place.

## Why it happens
The buckets hold the gradients that the backward pass produced. A rank whose batch skipped a branch (an image tower on
text alone, an expert, an optional head) produces others, and its next bucket has another length.

## How it decides
`TORCH_DISTRIBUTED_DEBUG=DETAIL` reports different shapes for one all-reduce or reduce-scatter, and both are flat
tensors of at least a million elements: data is not reduced in that form, gradients are. Lengths that differ by less
than a thousandth are the same layers, one of another size: that is `size-mismatch`. The minority is named.

## Example
`OpType=ALLREDUCE, TensorShape=[195812480] …, but Rank 0 is running … TensorShape=[51123456]`

## Fix
Let every rank run every branch (a dummy input with weight zero), or exclude the branch from the reduction everywhere.

## Limits
A flat buffer that the program itself made too long on one rank looks the same.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import statements

CODE = "COLL126"
CAUSE = "conditional-collective"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Let every rank run every branch of the model: a dummy input with weight zero where a batch has none.",
        "Find the branch by what differs in the batches of these ranks.",
    ),
    alternatives=(("size-mismatch", "the program itself may have made a buffer of another length"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    return [
        building.found(
            case,
            _CLAIM,
            m.signs,
            f"Ranks reduce gradient buckets of different length in {m.op} #{m.seq}: "
            f"{reported_mismatches.told(case, m)}.",
            Grade.SUPPORTS,
            m.ranks,
        )
        for m in reported_mismatches.mismatches(case)
        if reported_mismatches.are_buckets(m)
    ]
