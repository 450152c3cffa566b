"""Too many open files.

## What it finds
A process that hit its limit of open files: sockets of many ranks, shared-memory tensors of data loaders, files.

## Why it happens
Limits of 1024 are common in containers and in shells started by ssh or mpirun; torch's `file_descriptor` sharing
keeps a file open per tensor.

## How it decides
The words of errno 24, from Python, torch or NCCL, or `received 0 items of ancdata`, which is what Python says when
a file could not be passed for that reason.

## Example
`OSError: [Errno 24] Too many open files`

## Limits
A leak looks the same as a low limit: `ls /proc/PID/fd | wc -l` over time tells.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "HOST108"
CAUSE = "fd-limit"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="host",
    next=(NextStep("grep 'open files' /proc/PID/limits", "shows the limit of the rank itself", ("fd-limit",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    plain = statements.said(case, "Too many open files", "[Errno 24]")
    hinted = statements.said(case, "received 0 items of ancdata")
    known = statements.beside([*plain, *hinted], statements.known(case, CAUSE))
    signs = statements.first_to_fail([*(plain or hinted), *known])
    if not signs:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    message = f"{building.who(case, ranks, signs)} reached its limit of open files{building.others(case, ranks)}."
    sure = Grade.PROVES if plain else max(Grade.SUPPORTS if hinted else Grade.HINTS, statements.surest(known))
    return [building.found(case, _CLAIM, signs, message, sure, ranks)]
