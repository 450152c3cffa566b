"""Ranks issued different operations at the same place of a group, by the records of their guards.

## What it finds
A call of torch.distributed to which one rank brought another operation than the other members of the group.

## Why it happens
A branch that orders or adds calls differently on one rank.
NCCL often neither hangs nor prints: the result is wrong, and training goes on.

## How it decides
`whichrank run --guard` has every rank write down what it brings to each call, by group and number. The calls are lined
up by number; the first that differs counts, and the majority names the odd rank.

## Example
    call 21 of group default_pg: broadcast(…) at train.py:13
    (rank 2; all_reduce on the others)

## Fix
Issue the collectives of a group in the same order on every rank.

## Limits
Calls that C++ issues by itself, as the reductions of DistributedDataParallel, are not seen.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import guard_mismatches
from whichrank.timeline.case import Case

CODE = "COLL165"
CAUSE = "collective-order"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return guard_mismatches.judge(
        case, CODE, CAUSE, "op", "Issue the collectives of a group in the same order on every rank."
    )
