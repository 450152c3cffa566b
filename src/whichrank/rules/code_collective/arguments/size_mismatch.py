"""Ranks pass different element counts to the same collective.

## What it finds
Members of a group called the same operation with different sizes. It may hang, fail, or go on with wrong numbers:
NCCL compares nothing and prints nothing.

## Why it happens
A last batch of another length that is gathered without padding, a parameter that exists on some ranks only, a
different vocabulary or model configuration on one host, dynamic shapes.

## How it decides
Element counts are compared where they must agree (not for all-to-all, not at the root of gather and scatter). The
minority is the culprit; a difference that is really a shift of the whole sequence is reported as a skipped collective.

## Example
At `#17` rank 3 passes 262,144 elements to `all_reduce`, ranks 0-2 pass 1,048,576.

## Fix
Gather the sizes first and pad to the largest, or make the shapes equal; check that all ranks load the same
configuration. While debugging, `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares shapes before every operation (slow).

## Limits
Dumps hold neither the root nor the reduction operator: those mismatches need NCCL's log.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "COLL108"
CAUSE = "size-mismatch"

_FIX = (
    "Make the sizes equal on all ranks: gather the lengths first and pad, or drop the uneven last batch.",
    "Check that every rank built the same model and read the same configuration.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [wording.argument_mismatch(case, t, CODE, CAUSE, _FIX) for t in case.troubles if t.shape == "size"]
