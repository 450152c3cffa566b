"""The data loader of a rank timed out.

## What it finds
The time-out that a data loader raises when no worker delivers a batch.

## Why it happens
Workers wait for storage or a lock, or hang after a fork.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`RuntimeError: DataLoader timed out after 120 seconds`

## Fix
See what the workers do (py-spy dump on them): storage, a lock, a deadlock after fork. Start workers with spawn or
forkserver; raise the timeout only if loading is merely slow.

## Limits
It is raised only where the loader was given a timeout.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SLOW205"
CAUSE = "rank-stuck-in-data-loading"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "See what the workers do (py-spy dump on them): storage, a lock, a deadlock after fork.",
        "Start workers with spawn or forkserver; raise the timeout only if loading is merely slow.",
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} got no data in time: {what}.")
