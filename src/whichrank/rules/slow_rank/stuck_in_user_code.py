"""Busy or blocked in its own code: a rank does not reach the collective that the others wait in.

## What it finds
A rank is busy or blocked in host code that is neither communication nor any of the named phases.

## Why it happens
A lock that another thread holds, the interpreter lock held by an extension, a sleep, a long loop, a regular
expression, a subprocess that does not return.

## How it decides
The rank does not come, and its stack ends in the training code (or a library it calls) without one of the known
phases on it.

## Example
Rank 3 is in `wait_for_flag` at `train.py:71`, the others wait in `all_reduce #20`.

## Fix
Look at that line: what does it wait for or compute, and why on this rank only?

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW107"
CAUSE = "rank-stuck-in-user-code"
FIX = ("Look at that line: what does it wait for or compute, and why on this rank only?",)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "user", CODE, CAUSE, "busy or blocked in its own code", FIX)
