"""A host does not answer any more, by the words of tools around the job.

## What it finds
Words of ssh, of Ray or of Kubernetes that a host is gone.

## Why it happens
The host crashed, was rebooted or taken away, or lost its network.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`ssh: connect to host node3 port 22: No route to host`

## Fix
Look at the console or BMC of that host and at its kernel log after it is back. Leave it out of the job until the
reason is known.

## Limits
From outside a host that is down and one that is cut off look alike.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "HOST204"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look at the console or BMC of that host and at its kernel log after it is back.",
        "Leave it out of the job until the reason is known.",
    ),
    blames="host",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "A host does not answer any more: {what}.")
