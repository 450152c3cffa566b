"""Preparing data or files before the others may go on: a rank does not reach the collective that the others wait in.

## What it finds
A rank tokenises, builds an index, downloads or unpacks while the others wait for it.

## Why it happens
"Rank 0 first" patterns with a barrier, a cold cache, a slow download, a lock file left by an earlier run.

## How it decides
The rank does not come, and its stack is in a tokenizer, a dataset builder, a hub download, a file lock, or a
function named for preparing data.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 0 is in `tokenize_corpus` at `prepare.py:17`, ranks 1-15 wait in `barrier #1`.

## Fix
Prepare the data before the job starts, or in a step of its own. If it must be inside, give the first barrier a
group with a long timeout, and remove stale lock files.

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW105"
CAUSE = "rank-stuck-in-preprocessing"
FIX = (
    "Prepare the data before the job starts, or in a step of its own.",
    "If it must be inside, give the first barrier a group with a long timeout, and remove stale lock files.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "preprocessing", CODE, CAUSE, "preparing data or files before the others may go on", FIX)
