"""Ranks name different roots for the same collective.

## What it finds
Members of a group called the same broadcast, reduce, gather or scatter with different roots. NCCL compares nothing:
the data comes from, or goes to, different ranks, and the job goes on with wrong numbers.

## Why it happens
A root computed from a local value, the rank within a group taken for the global one (or the other way round).

## How it decides
The flight recorder holds neither root nor operator; NCCL's own log does (`NCCL_DEBUG=INFO` with `COLL`).
The n-th call of each communicator is compared across its members; the minority is the culprit.

## Example
At the 40th call rank 2 broadcasts from root 1, ranks 0, 1 and 3 from root 0.

## Limits
Without NCCL's lines about collectives nothing can be said.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.wording import argument_mismatch
from whichrank.timeline.case import Case

CODE = "COLL113"
CAUSE = "root-mismatch"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.calls is None:
        return NotEvaluated("NCCL's log with COLL lines")
    seen = replace(case, lineup=case.calls, has_dumps=False)
    return [argument_mismatch(seen, t, CODE, CAUSE, fix(CAUSE)) for t in case.call_troubles if t.shape == "root"]
