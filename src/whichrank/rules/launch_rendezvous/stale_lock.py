"""A lock or a store of an earlier run blocks this one.

## What it finds
Stacks and messages of processes that wait for a lock file: of an extension build, of a cache, of a package tool.

## Why it happens
A run that was killed leaves its lock file behind; the next one waits for an owner that does not exist. On network
file systems locks outlive their owners.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`File ".../torch/utils/file_baton.py", line 42, in wait`

## Fix
See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions
~/.cache/torch_extensions/*/*/lock. Keep such caches on local disks, or one per host.

## Limits
While another process really builds, the wait is right and ends by itself.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import sighted
from whichrank.rules.crashes import Claim
from whichrank.timeline.case import Case

CODE = "LNCH201"
CAUSE = "stale-lock-or-store"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions "
            "~/.cache/torch_extensions/*/*/lock."
        ),
        "Keep such caches on local disks, or one per host.",
    ),
    category="hang",
    next=(
        NextStep(
            "lsof LOCKFILE",
            "tells whether any process holds the lock",
            (
                "stale-lock-or-store",
                "rank-stuck-in-compile",
            ),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return sighted.judge(case, _CLAIM, "{who} waits for a lock that an earlier run may have left behind: {what}.")
