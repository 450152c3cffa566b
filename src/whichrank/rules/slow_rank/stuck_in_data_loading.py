"""Blocked in data loading: a rank does not reach the collective that the others wait in.

## What it finds
A rank is reading or preparing data while the others wait for it in a collective.

## Why it happens
Slow or hanging storage, a remote shard that does not answer, a worker process that died or deadlocked, decoding
that takes too long, a queue that nobody fills.

## How it decides
The line-up (or the watchdog, or the other stacks) says that this rank does not come, and its stack is inside a
data loader, or in a function of the training code named for loading data.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 1 is in `fetch_remote_shard` at `train.py:22`, ranks 0, 2 and 3 wait in `all_reduce #13`.

## Fix
Look at the source it reads from: is the file system, bucket or shard server answering on that host? Give the
loader a timeout (DataLoader(timeout=…)) and retries, and prefetch more; check its worker processes.

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW102"
CAUSE = "rank-stuck-in-data-loading"
FIX = (
    "Look at the source it reads from: is the file system, bucket or shard server answering on that host?",
    "Give the loader a timeout (DataLoader(timeout=…)) and retries, and prefetch more; check its worker processes.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "data", CODE, CAUSE, "blocked in data loading", FIX)
