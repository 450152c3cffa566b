"""The security group blocks the cloud's fabric traffic.

## What it finds
Transfers over EFA that complete with an error, or peers that do not answer on EFA.

## Why it happens
EFA needs a security group that allows all traffic to and from itself. Rules by address range, or instances in
different groups, let TCP pass and block EFA.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN NET/OFI Request 0x7f01 completed with error. RC: 20. Error: unknown error`

## Fix
Allow all inbound and outbound traffic of the security group to itself, and put all instances into that one group and
one subnet. Check with fi_pingpong -p efa between two instances.

## Limits
In a run that had worked for long the same errors mean that the peer is gone.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA210"
CAUSE = "efa-security-group"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Allow all inbound and outbound traffic of the security group to itself, and put all instances into that "
            "one group and one subnet."
        ),
        "Check with fi_pingpong -p efa between two instances.",
    ),
    blames="host",
    next=(
        NextStep(
            "fi_pingpong -p efa ADDRESS", "passes only if the group lets EFA through", ("efa-security-group",), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(
        case, _CLAIM, "A transfer over EFA did not arrive; the security group must allow all traffic to itself: {what}."
    )
