"""A data-loader worker process died.

## What it finds
`DataLoader worker (pid …) is killed by signal …` or `exited unexpectedly` on a rank.

## Why it happens
A bus error when `/dev/shm` is full, the out-of-memory killer, a crash in a decoder, or an exception in the worker's
own start-up.

## How it decides
The data loader's own message, on the rank whose process printed it. The signal tells what to look at: Killed points
to host memory, Segmentation fault to native code in the worker. A bus error is told as a full /dev/shm (HOST107),
unless /dev/shm is known to have room.

## Example
`RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error.`

## Fix
Raise `--shm-size` (or mount a larger `/dev/shm`), use fewer workers, or run with `num_workers=0` to see the real
error.

## Limits
The message does not say what the worker was doing.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import DataloaderWorkerDied
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, shared_memory, statements

CODE = "HOST106"
CAUSE = "dataloader-worker-death"

_BUS, _KILL = 7, 9
_REASONS = {
    _BUS: ("shm-too-small", "a bus error in a worker is what a full /dev/shm looks like"),
    _KILL: ("host-out-of-memory", "the out-of-memory killer often picks data-loader workers"),
}
_FIX = (
    "After a bus error: a larger /dev/shm (docker --shm-size or --ipc=host), or fewer workers.",
    "After a kill: fewer workers or less per worker; the kernel log tells whether memory ran out.",
    "Otherwise run with num_workers=0: the error then shows in the main process.",
)
_NEXT = (
    NextStep("df -h /dev/shm", "tells whether shared memory is full", ("shm-too-small",), "none"),
    NextStep(
        "dmesg -T | grep -iE 'oom-kill|killed process'",
        "shows a kill for memory",
        ("host-out-of-memory",),
        "none",
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    # Who ends a job ends its workers with it.
    died = [s for s in statements.of_kind(case, DataloaderWorkerDied) if not deaths.follows_the_end(case, s)]
    signs = statements.first_to_fail(died)
    if not signs and shared_memory.roomy(case):  # else it is taken for what torch guesses
        signs = statements.first_to_fail(statements.said(case, shared_memory.GUESS))
    if not signs:
        return []
    ranks = statements.ranks_of(signs) or deaths.only_one_failed(case)
    event = signs[0].event
    number = event.signal if isinstance(event, DataloaderWorkerDied) else _BUS
    how = f" by {deaths.SIGNALS.get(number, f'signal {number}')}" if number else ""
    offered = (_REASONS[number],) if number in _REASONS else ()
    claim = Claim(CODE, CAUSE, fix=_FIX, blames="host", alternatives=offered, next=_NEXT)
    whose = building.whose(case, ranks, signs)
    message = f"A data-loader worker of {whose} died{how}{building.others(case, ranks)}."
    sure = Grade.SUPPORTS if number == _BUS and not shared_memory.roomy(case) else Grade.PROVES
    return [building.found(case, claim, signs, message, sure, ranks)]
