"""`/dev/shm` is too small or full.

## What it finds
Failures to make or extend shared memory: NCCL's segments, torch's tensors between processes.

## Why it happens
Containers get 64 MB by default; NCCL's proxy alone takes about 34 MB per process, data loaders far more; segments
of killed runs stay behind.

## How it decides
"No space left on device" about a shared-memory segment (by NCCL's warning or a path below `/dev/shm`), or torch's
failure to open, write or map a shared-memory file. Without a path the frames tell: Python's locks, queues and shared
arrays are semaphores and segments, which lie there. joblib says that it could not make a semaphore. A data-loader
worker that died of a bus error wrote to a page of shared memory that could not be had.

## Example
`Error while creating shared memory segment /dev/shm/nccl-aB3dEf (size 9637888), error: No space left on device
(28)`

## Limits
A bus error in a data-loader worker may also come of a mapped file that was cut. It counts only where /dev/shm is not
known to have room.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.processes import DataloaderWorkerDied
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, shared_memory, statements

CODE = "HOST107"
CAUSE = "shm-too-small"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    blames="host",
    next=(NextStep("df -h /dev/shm; ls -l /dev/shm", "shows its size and what fills it", ("shm-too-small",), "none"),),
)
_BUS = 7
_FULL = ("No space left on device", "Cannot allocate memory")
_TORCH = ("unable to open shared memory object", "unable to write to file </torch", "insufficient shared memory")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    said = statements.said(case, *_FULL)
    known = [s for s in statements.known(case, CAUSE) if "DataLoader worker (pid" not in s.text]
    full = [s for s in statements.beside(known, said) if shared_memory.about_shared_memory(s)]
    full += [s for s in said if s not in full and shared_memory.repeats(s, full)]
    torch = [
        s
        for s in statements.said(case, *_TORCH)
        if "Too many open files" not in s.text and "DataLoader worker (pid" not in s.text
    ]
    making = statements.said(case, "Error while creating shared memory segment")
    signs = [*full, *torch, *making, *_bus_errors(case)]
    known = statements.beside(signs, known)
    if shared_memory.roomy(case):
        signs, known = ([s for s in told if not _is_bus_error(s)] for told in (signs, known))
    if not signs and not known:
        return []
    direct = bool(signs)
    signs = statements.first_to_fail([*signs, *known])
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    sure = Grade.PROVES if full else max(Grade.SUPPORTS if direct else Grade.HINTS, statements.surest(known))
    message = f"{building.who(case, ranks, signs)} could not get shared memory: {building.short(signs[0].ref.quote)}."
    return [building.found(case, _CLAIM, signs, message, sure, ranks)]


def _bus_errors(case: Case) -> list[statements.Statement]:
    """Data-loader workers that died of a bus error, not of the job's end."""
    return [
        s
        for s in statements.of_kind(case, DataloaderWorkerDied)
        if _is_bus_error(s) and not deaths.follows_the_end(case, s)
    ]


def _is_bus_error(found: statements.Statement) -> bool:
    event = found.event
    return shared_memory.GUESS in found.text or (isinstance(event, DataloaderWorkerDied) and event.signal == _BUS)
