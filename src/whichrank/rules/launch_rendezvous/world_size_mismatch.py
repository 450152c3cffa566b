"""More or fewer processes join than the world size says.

## What it finds
A start barrier that more workers reached than there are ranks, two processes with the same rank, or ranks that
disagree about their number.

## Why it happens
The program is launched twice (torchrun inside srun with many tasks, a script that starts itself), a worker group
was restarted on the same store, or nodes were started with different numbers.

## How it decides
The barrier's own counters (`worker_count` above `world_size`), or NCCL's bootstrap that refuses a second check-in
or a different count.

## Example
`Waiting in store based barrier … (world_size=4, worker_count=16, timeout=0:01:00)`

## Fix
One launch per node with the same `--nnodes` and `--nproc-per-node`; one task per node under srun; if workers were
restarted, look for the first failure and start with `--max-restarts=0` and a fresh port.

## Limits
After a restart the first failure is the cause, and stands earlier in the log.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.startup import CommInit, GroupInit, NotJoined, StoreError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "LNCH105"
CAUSE = "world-size-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Start the job once: one launcher per node, the same --nnodes and --nproc-per-node everywhere.",
        "If the agent restarted workers, find the first failure above; use --max-restarts=0 and a fresh port.",
    ),
    alternatives=(("rank-exception", "if workers were restarted, the first failure stands earlier"),),
)
_NCCL = (
    "mismatch in rank count from procs",
    "mismatch in info from procs",
    "has already checked in",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    crowded = statements.of_kind(case, StoreError, where=_too_many)
    refused = statements.said_by_nccl(case, *_NCCL)
    signs = statements.first_to_fail([*crowded, *refused])
    if not signs:
        return []
    event = crowded[0].event if crowded else None
    if isinstance(event, StoreError):
        told = f"{event.joined} processes joined a job of {event.world_size}"
    else:
        told = f"the ranks disagree about who they are: {building.short(refused[0].text)}"
    absent = _absent(case) if refused else ()
    told += f"; nobody came as rank {absent[0]}" if absent else ""
    return [building.found(case, _CLAIM, signs, f"WORLD_SIZE and processes do not fit: {told}.", Grade.PROVES, absent)]


def _absent(case: Case) -> tuple[int, ...]:
    """The one number that no process has, where all others are known: another came twice in its place."""
    known = {event.rank for event in case.events(GroupInit, CommInit, NotJoined)}
    missing = [rank for rank in range(case.world) if rank not in known]
    return tuple(missing) if len(missing) == 1 and len(known) > 1 else ()


def _too_many(event: StoreError) -> bool:
    joined, world = event.joined, event.world_size
    return joined is not None and world is not None and joined > world
