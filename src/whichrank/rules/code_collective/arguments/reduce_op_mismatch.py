"""Ranks use different reductions in the same collective.

## What it finds
Members of a group reduced with different operators (sum, avg, max, …). NCCL compares nothing: parts of the result are
sums and parts are not, and the job goes on with wrong numbers.

## Why it happens
A condition on the rank or on local data chooses the operator; averaging switched on for some ranks only.

## How it decides
The flight recorder holds neither root nor operator; NCCL's own log does (`NCCL_DEBUG=INFO` with `COLL`).
The n-th call of each communicator is compared across its members; the minority is the culprit.

## Example
At the 40th call rank 2 reduces with max, ranks 0, 1 and 3 with sum.

## Fix
Pass the same `op` on every rank.

## Limits
Without NCCL's lines about collectives nothing can be said.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.wording import argument_mismatch
from whichrank.timeline.case import Case

CODE = "COLL114"
CAUSE = "reduce-op-mismatch"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.calls is None:
        return NotEvaluated("NCCL's log with COLL lines")
    seen = replace(case, lineup=case.calls, has_dumps=False)
    fix = ("Pass the same op on every rank.",)
    return [argument_mismatch(seen, t, CODE, CAUSE, fix) for t in case.call_troubles if t.shape == "reduce-op"]
