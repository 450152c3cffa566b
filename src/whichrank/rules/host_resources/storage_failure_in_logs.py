"""Shared storage fails under a rank.

## What it finds
`Stale file handle` (errno 116): a network file system does not know a file any more that the job has open.

## Why it happens
Another host replaced or removed the file, the server was exported anew, restarted or failed over, or a mount is left
over from before.

## How it decides
The words of the message itself. Lines after which training went on for many steps are not counted. Of several messages
the earliest names the rank or the host that met it.

## Example
`OSError: [Errno 116] Stale file handle: '/data/shard-0007.bin'`

## Fix
Look at the mount and the server of that host; write new files and rename them instead of replacing files that others
read.

## Limits
The message does not say whether the server failed or the job's own ranks replaced the file.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "HOST205"
CAUSE = "storage-stall"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look at the mount on that host and at its server; mount it again where every file of it is stale.",
        "Write new files and rename them instead of replacing files that others read; keep caches on local disks.",
    ),
    blames="host",
    next=(
        NextStep(
            "df -h; mount | grep -E 'nfs|lustre'; dmesg -T | grep -iE 'nfs|lustre'",
            "shows whether the whole mount is stale, and when the server was away",
            ("storage-stall",),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "Shared storage failed under {who}: {what}.")
