"""Ranks named different roots for the same collective, by the records of their guards.

## What it finds
A call of torch.distributed to which one rank brought another root than the other members of the group.

## Why it happens
A root that is computed from local state.
NCCL often neither hangs nor prints: the result is wrong, and training goes on.

## How it decides
`whichrank run --guard` has every rank write down what it brings to each call, by group and number. The calls are lined
up by number; the first that differs counts, and the majority names the odd rank.

## Example
    call 21 of group default_pg: broadcast(4 elements of float32, root 2) at train.py:13
    (rank 2; root 0 on the others)

## Fix
Take the root from a constant or a broadcast value.

## Limits
Calls that C++ issues by itself, as the reductions of DistributedDataParallel, are not seen.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import guard_mismatches
from whichrank.timeline.case import Case

CODE = "COLL163"
CAUSE = "root-mismatch"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return guard_mismatches.judge(case, CODE, CAUSE, "root", "Take the root from a constant or a broadcast value.")
