"""Rank 0 timed out in an operation that no other rank is in.

## What it finds
Rank 0 alone waits in one collective, and all others that timed out wait at the same place of the group in another.

## Why it happens
A collective, or a call that hides one (a sharded `state_dict()`, a DDP forward), under `if rank == 0`.

## How it decides
The watchdogs print the operation and its number in the group. At one number of the group of all ranks, rank 0 says
another operation than everybody else. It needs no dump; with dumps COLL102 says more.

## Example
`[Rank 0] … SeqNum=24011, OpType=_ALLGATHER_BASE …` and `[Rank 7] … SeqNum=24011, OpType=ALLREDUCE, NumelIn=1 …`

## Fix
Move the call out of the condition, so that every rank makes it; keep only the writing of the file inside.

## Limits
It does not see the code: rank 0 may also have taken a branch on its own data.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import statements

CODE = "COLL137"
CAUSE = "rank0-only-collective"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Move the call out of the condition on the rank, so that every rank makes it; keep only the file inside.",
        "Sharded state dicts and DDP forwards are such calls: every rank must make them.",
    ),
    alternatives=(
        ("conditional-collective", "rank 0 may have taken a branch on its own data"),
        ("collective-order", "it may make the missing call later, in another order"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    return [
        building.found(
            case,
            _CLAIM,
            found.signs,
            f"Rank 0 alone is in {found.brought[0]}; all others that timed out are in {_others(found)}.",
            Grade.SUPPORTS,
            (0,),
        )
        for found in reported_mismatches.mismatches(case)
        if reported_mismatches.is_rank0_alone(found)
    ]


def _others(found: reported_mismatches.Mismatch) -> str:
    return " and ".join(sorted({op for rank, op in found.brought.items() if rank != 0}))
