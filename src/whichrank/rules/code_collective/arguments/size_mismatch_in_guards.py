"""Ranks passed different numbers of elements to the same collective, by the records of their guards.

## What it finds
A call of torch.distributed to which one rank brought another number of elements than the other members of the group.

## Why it happens
A tensor whose size depends on local data.
NCCL often neither hangs nor prints: the result is wrong, and training goes on.

## How it decides
`whichrank run --guard` has every rank write down what it brings to each call, by group and number. The calls are lined
up by number; the first that differs counts, and the majority names the odd rank.

## Example
    call 21 of group default_pg: all_reduce(SUM, 5 elements of float32) at train.py:13
    (rank 2; 4 on the others)

## Fix
Pad to a size that all ranks share, or exchange the sizes first.

## Limits
Calls that C++ issues by itself, as the reductions of DistributedDataParallel, are not seen.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import guard_mismatches
from whichrank.timeline.case import Case

CODE = "COLL161"
CAUSE = "size-mismatch"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return guard_mismatches.judge(
        case, CODE, CAUSE, "n", "Pad to a size that all ranks share, or exchange the sizes first."
    )
