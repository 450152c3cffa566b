"""A kernel on one rank's GPU does not end, so the collective behind it can't start.

## What it finds
A rank that has queued a collective like everybody else, but whose GPU never began it.

## Why it happens
A kernel before it on the stream loops forever (a bad custom kernel, a spin on memory that nobody writes), or the GPU
itself is wedged.

## How it decides
All members joined with the same arguments. With timing on, this rank's operation was never started although nothing
older of its own is unfinished, while others have started. In a group of one rank an unfinished operation can only be
held up by its own GPU.

## Example
Ranks 0-6 have started `all_reduce #88`, on rank 7 it is still scheduled.

## Limits
Without `TORCH_NCCL_ENABLE_TIMING=1` the recorder never says "started", and only a stalled collective can be reported.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "CUDA101"
CAUSE = "gpu-kernel-stuck"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if t.shape == "not-started"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    row = trouble.acted if trouble.acted is not None else next(iter(trouble.meeting.joined.values()))
    alone = len(trouble.meeting.joined) == 1
    reason = "it has no peer to wait for" if alone else f"while {wording.ranks_text(trouble.victims)} began it"
    verb = "finished" if alone else "began"
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(ranks=trouble.ranks, code=wording.place(lineup, row, trouble.ranks[0])),
        message=(
            f"The GPU of {wording.culprits_text(case, trouble.ranks)} never {verb} {wording.step(lineup, row)}, "
            f"{reason}: a kernel before it does not end."
        ),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        alternatives=(Alternative("collective-stalled", "the operation itself may hang in NCCL or the driver"),),
        next=(
            NextStep(
                "dmesg -T | grep -i xid",
                "an Xid on that GPU means hardware or driver",
                ("xid-gpu-fault",),
                "none",
            ),
        ),
        fix=fix(CAUSE),
    )
