"""The clocks of hosts differ.

## What it finds
Words of make, of TLS or of Kerberos that a time is in the future or not yet valid.

## Why it happens
The time service of a host does not run, or the host started with a wrong clock.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`make: warning:  Clock skew detected.  Your build may be incomplete.`

## Fix
Start the time service on all hosts and check it: chronyc tracking.

## Limits
Times of logs alone do not tell: time zones differ too.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "HOST203"
CAUSE = "clock-skew"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=("Start the time service on all hosts and check it: chronyc tracking.",),
    category="config",
    blames="host",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "The clock of {who} is wrong: {what}.")
