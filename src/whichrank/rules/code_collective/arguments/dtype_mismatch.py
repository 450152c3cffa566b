"""Ranks pass different data types to the same collective.

## What it finds
Members of a group called the same operation with tensors of different types. NCCL reads the bytes as its own type
says: the numbers are wrong and nothing is printed.

## Why it happens
Autocast or a cast on one rank only, a checkpoint loaded in another precision, a metric that is an integer on one
rank and a float on another.

## How it decides
The types in the dumps of one collective differ while the operation and the counts agree. The minority is the culprit.

## Example
At `#40` rank 1 passes BFloat16 to `all_reduce`, ranks 0, 2 and 3 pass Float.

## Limits
Sizes that differ as well are reported as a size mismatch.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "COLL109"
CAUSE = "dtype-mismatch"

_FIX = fix(CAUSE)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [wording.argument_mismatch(case, t, CODE, CAUSE, _FIX) for t in case.troubles if t.shape == "dtype"]
