"""A communicator of a part of the job was never made, by NCCL's log.

## What it finds
Ranks that began to make a communicator of some ranks and never finished, in a job whose communicator of all ranks is
made: a member does not come to the first call of that group.

## Why it happens
One member takes another branch, is held up in its own code, or waits in the call of another group.

## How it decides
Each process prints `Init START` and `Init COMPLETE`, with an id that all members share. The members that never began
are among the ranks that have made no more communicators than those that wait, and wait in none; where as many of them
are left as are missing, they are named, else they are candidates. The logs of all ranks must be at hand.

## Example
Ranks 0 and 4 begin a communicator of three, the odd ranks finish theirs, and rank 2 begins none.

## Fix
Look at what that rank does before the first collective of the group: its stack tells.

## Limits
Before 2.16 NCCL prints no id. A log that was copied while the job started looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.nccl import CommInit, NcclProcess
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "COLL150"
CAUSE = "collective-desync"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    ranks = {rank: p for p in case.nccl if (rank := case.people.rank_of(p.pid, p.host)) is not None}
    if not ranks or ranks.keys() != set(range(case.world)):
        return NotEvaluated("NCCL's log of every rank (NCCL_DEBUG=INFO)")
    if case.has_dumps or case.stacks or case.finish is not None or not all(map(_in_whole_job, ranks.values())):
        return []
    made = {rank: _made(process) for rank, process in ranks.items()}
    waiting = {rank: unmade[-1] for rank, p in ranks.items() if (unmade := _unmade(p)) and unmade[-1].comm_id}
    for init in {init.comm_id: init for init in waiting.values()}.values():
        begun = {rank: i for rank, i in waiting.items() if (i.comm_id, i.nranks) == (init.comm_id, init.nranks)}
        most = max(made[rank] for rank in begun)
        absent = tuple(r for r in sorted(ranks) if r not in waiting and made[r] <= most)
        missing = init.nranks - len(begun)
        if 0 < missing <= len(absent) and init.nranks < case.world:
            return [_finding(ranks, begun, init, absent, missing)]
    return []


def _in_whole_job(process: NcclProcess) -> bool:
    return bool(process.inits) and process.inits[0].comm in {i.comm for i in process.inits if i.phase == "complete"}


def _made(process: NcclProcess) -> int:
    return len({init.comm for init in process.inits if init.phase == "complete"})


def _unmade(process: NcclProcess) -> list[CommInit]:
    """Communicators that it began and neither made nor gave up."""
    over = {init.comm for init in process.inits if init.phase == "complete"} | {end.comm for end in process.ends}
    return [init for init in process.inits if init.comm not in over]


def _finding(
    ranks: Mapping[int, NcclProcess], begun: Mapping[int, CommInit], init: CommInit, absent: tuple[int, ...],
    missing: int,
) -> Finding:  # fmt: skip
    named = len(absent) == missing
    who = wording.ranks_text(absent) if named else f"{missing} of {wording.ranks_text(absent)}"
    waiting = tuple(sorted(begun))
    verb = "waits" if len(waiting) == 1 else "wait"
    refs = tuple(
        Ref(
            ranks[rank].source, f"line {begun[rank].line}",
            f"rank {begun[rank].rank} nranks {init.nranks} - Init START", rank, ranks[rank].host,
        )
        for rank in waiting[:4]
    )  # fmt: skip
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        subject=Subject(ranks=absent) if named else Subject(candidates=absent),
        message=f"{wording.ranks_text(waiting).capitalize()} {verb} for a communicator of {init.nranks} ranks to be "
        f"made; {who} never came to it.",
        evidence=refs,
        victims=waiting,
        alternatives=(
            Alternative("conditional-collective", "a member may have taken another path through the code"),
            Alternative("rank-stuck-in-user-code", "a member may be held up in host code"),
        ),
        fix=fix(CAUSE),
        next=(NextStep("py-spy dump --pid PID", "the stack of that rank shows what it is in", (CAUSE,), "none"),),
    )
