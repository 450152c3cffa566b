"""The library refuses a collective call.

## What it finds
Calls that torch or NCCL turns down on this rank: a tensor on the wrong device, not contiguous, of a type or size that
the operation can not take, a root or group that does not exist, an operation that the back end does not have.

## Why it happens
The tensor was not moved to the rank's GPU, a shard is uneven, a group rank was passed for a global one, the back end
is another than expected.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`ValueError: Tensors must be contiguous`

## Fix
Correct the call that the traceback names: device, contiguity, type, sizes, root, group. For CPU and CUDA tensors in
one job: backend="cpu:gloo,cuda:nccl".

## Limits
The bare classes ncclInvalidUsage and ncclInvalidArgument say too little; the warning of NCCL beside them counts.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "COLL201"
CAUSE = "invalid-collective-call"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Correct the call that the traceback names: device, contiguity, type, sizes, root, group.",
        'For CPU and CUDA tensors in one job: backend="cpu:gloo,cuda:nccl".',
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} made a call that the library refuses: {what}.")
