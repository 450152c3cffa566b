"""A known defect of this NCCL version.

## What it finds
Messages that only a defect or a limit of the library explains.

## Why it happens
The library meets a machine or a sequence of calls that this release does not handle.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN Error : too many XML nodes (max 256)`

## Fix
Try the newest NCCL that the framework can load, and the release notes of the versions between.

## Limits
"internal error - please report this issue" is mostly the echo of another failure and does not count here.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SOFT205"
CAUSE = "nccl-bug"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=("Try the newest NCCL that the framework can load, and the release notes of the versions between.",),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "NCCL itself fails: {what}.")
