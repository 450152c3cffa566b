"""Ranks passed different data types to the same collective, by the records of their guards.

## What it finds
A call of torch.distributed to which one rank brought another data type than the other members of the group.

## Why it happens
A cast on one rank alone, or a default that differs.
NCCL often neither hangs nor prints: the result is wrong, and training goes on.

## How it decides
`whichrank run --guard` has every rank write down what it brings to each call, by group and number. The calls are lined
up by number; the first that differs counts, and the majority names the odd rank.

## Example
    call 21 of group default_pg: all_reduce(SUM, 4 elements of float64) at train.py:13
    (rank 2; float32 on the others)

## Fix
Cast to one type on every rank before the call.

## Limits
Calls that C++ issues by itself, as the reductions of DistributedDataParallel, are not seen.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import guard_mismatches
from whichrank.timeline.case import Case

CODE = "COLL162"
CAUSE = "dtype-mismatch"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return guard_mismatches.judge(case, CODE, CAUSE, "d", "Cast to one type on every rank before the call.")
