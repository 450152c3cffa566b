"""A file system is full.

## What it finds
A write that failed because no space, or no quota, was left.

## Why it happens
Checkpoints pile up, a cache or a temporary folder lies on a small local disk, a user's quota is reached.

## How it decides
errno 28 or 122 in an exception of a rank, where it is not about shared memory: neither by its words nor by its frames
(Python's locks and queues are semaphores, which lie in `/dev/shm`). Where a data-loader worker died of a bus error, the
message must name a path.

## Example
`OSError: [Errno 28] No space left on device: '/scratch/ckpt/step_4000.pt'`

## Limits
The message may not name the file: the traceback's line tells what was written.
"""

from __future__ import annotations

import re
import signal

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import DataloaderWorkerDied
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, shared_memory, statements

CODE = "HOST109"
CAUSE = "disk-full"
_PATH = re.compile(r"(?<![\w/])/(?!dev/shm)\w[\w.-]{0,80}/")

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="host",
    alternatives=(("shm-too-small", "where no path is named it may have been /dev/shm"),),
    next=(NextStep("df -h; df -i", "shows which file system is full", ("disk-full", "shm-too-small"), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    said = statements.said(case, "No space left on device", "Disk quota exceeded")
    told = statements.beside(statements.known(case, "shm-too-small"), said)
    shared = [s for s in told if shared_memory.about_shared_memory(s)]
    plain = [s for s in told if s not in shared and not shared_memory.repeats(s, shared)]
    if any(e.signal == signal.SIGBUS for e in case.events(DataloaderWorkerDied)):
        # Its workers hand batches over in /dev/shm: a page of it that can't be had is a bus error.
        plain = [s for s in plain if _PATH.search(s.ref.quote)]
    known = statements.beside(told, statements.known(case, CAUSE))
    signs = statements.first_to_fail([*plain, *known])
    if not signs:
        return []
    ranks = statements.unless_all(case, statements.ranks_of(signs) or deaths.only_one_failed(case))
    message = f"{building.who(case, ranks, signs)} could not write: {building.short(signs[0].ref.quote)}."
    return [building.found(case, _CLAIM, signs, message, Grade.PROVES if plain else statements.surest(known), ranks)]
