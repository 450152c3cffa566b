"""A rank waits for its own GPU although no collective is open on it.

## What it finds
A rank that others wait for, that has no unfinished collective, and whose stack is inside a call that waits for the GPU.

## Why it happens
A kernel on that GPU does not end: a bad custom kernel, a spin on memory that nobody writes, a wedged GPU.

## How it decides
The line-up says that the rank does not arrive and that all its collectives are finished; its stack says
`synchronize`, `item` or the like. Then the GPU is busy with something that is not a collective.

## Example
Ranks 0, 1 and 3 wait in `all_reduce #14`; rank 2 finished `#13` and sits in `torch.cuda.synchronize`.

## Limits
A kernel that is only long looks the same for as long as it runs.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import stack_ref

CODE = "CUDA150"
CAUSE = "gpu-kernel-stuck"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None or not case.stacks:
        return NotEvaluated("dumps (or NCCL's log) together with stacks")
    found = []
    for trouble in case.troubles:
        ranks = tuple(r for r in trouble.ranks if trouble.shape == "stopped" and _waits_for_gpu(case, r))
        if ranks and len(ranks) == len(trouble.ranks):
            found.append(_finding(case, ranks, trouble.victims))
    return found


def _waits_for_gpu(case: Case, rank: int) -> bool:
    activity = case.activities.get(rank)
    return activity is not None and activity.doing == "waiting" and not activity.collective and _on_nccl(case)


def _on_nccl(case: Case) -> bool:
    return case.lineup is not None and any(call.backend != "gloo" for call in case.lineup.calls)


def _finding(case: Case, ranks: tuple[int, ...], victims: tuple[int, ...]) -> Finding:
    lineup = wording.lineup_of(case)
    activity = case.activities[ranks[0]]
    place = activity.place
    at = f" at {place}" if place else ""
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(
            ranks=ranks, code=(CodePlace(place.file, place.line, place.function, ranks[0]),) if place else ()
        ),
        message=(
            f"{wording.culprits_text(case, ranks).capitalize()} waits for its own GPU in "
            f"{activity}{at}, though all its collectives are finished: a kernel there does not end."
        ),
        evidence=(*(stack_ref(case, rank) for rank in ranks[:2]), *wording.evidence(lineup, case.troubles[0])[:3]),
        victims=victims,
        onset_ns=wording.onset(case, case.troubles[0]),
        alternatives=(Alternative("xid-gpu-fault", "the GPU itself may be wedged"),),
        next=(NextStep("dmesg -T | grep -i xid; nvidia-smi", "on the host of that rank", ("xid-gpu-fault",), "none"),),
        fix=fix(CAUSE),
    )
