"""Ranks started with different code, versions or switches, by the records of their guards.

## What it finds
A file of the training code, a version of Python, torch or another library, or a switch of torch that changes results,
that is not the same on all ranks.

## Why it happens
A node with an older checkout or image; a file system that shows one node an old file; a switch that is set under a
condition on the rank.

## How it decides
Every rank's guard writes down checksums of the loaded files of the training code, versions, and switches. What all
ranks have is compared; the majority names the odd rank.

## Example
    code /srv/app/train.py: 5f3b12aa     (rank 3; b9333626 on the others)

## Fix
Start every rank from the same code and the same environment.

## Limits
Files that only some ranks have loaded are not compared. Variables are judged by other rules.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.timeline.case import Case
from whichrank.timeline.guard.wrong import Wrong

CODE = "CONF161"
CAUSE = "wrong-environment"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    found = guard_findings.wrongs(case, "launch")
    if isinstance(found, NotEvaluated):
        return found
    return [_finding(case, wrong) for wrong in found[:8]]


def _finding(case: Case, wrong: Wrong) -> Finding:
    what = {"code": "another version of the file", "version": "another version of"}.get(
        wrong.tensor, "another setting of"
    )
    values = "; ".join(f"rank {rank}: {value}" for rank, value in list(wrong.values.items())[:4])
    message = (
        f"{guard_findings.who(wrong)} {'runs' if len(wrong.odd) == 1 else 'run'} with {what} {wrong.module} ({values})."
    )
    fix = ("Start every rank from the same code, image and settings.",)
    return guard_findings.found(case, wrong, CODE, CAUSE, message, Grade.PROVES, fix, category="config", severe=False)
