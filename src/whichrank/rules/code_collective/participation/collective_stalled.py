"""All members have joined an operation with agreeing arguments, and none finishes.

## What it finds
An operation that everybody came to and nobody completes.

## Why it happens
The network or a link between two members stopped carrying data, a GPU or its driver hangs, NCCL itself is at fault,
or another operation on the same GPU holds the stream.

## How it decides
Every member has an entry for the same operation with the same arguments; none is finished although the job stands
still. With timing on (`TORCH_NCCL_ENABLE_TIMING=1`) ranks whose kernel never began are told apart (a stuck kernel).

## Example
All 16 ranks are in `all_reduce #301`, none has finished after 600 s.

## Fix
Not in the training code: look at the network counters, kernel logs and GPUs of the members.

## Limits
The dumps don't hold what the transport does; NCCL's log and the fabric counters do.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL111"
CAUSE = "collective-stalled"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if t.shape == "stalled"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    row = next(iter(trouble.meeting.joined.values()))
    lagging = trouble.meeting.pending if trouble.meeting.finished else ()
    some = (
        f"; {wording.ranks_text(trouble.meeting.finished)} finished, {wording.ranks_text(lagging)} did not"
        if lagging
        else ""
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        confidence=round(trouble.sure * 0.8, 2),
        subject=Subject(code=wording.place(lineup, row)),
        message=(
            f"All members have joined {wording.step(lineup, row)} with the same arguments and it does not finish{some}."
        ),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        alternatives=(
            Alternative("gpu-kernel-stuck", 0.15, "a kernel before it on one GPU may not end"),
            Alternative("firewall", 0.05, "the path between two hosts may drop traffic"),
        ),
        next=(
            NextStep(
                "whichrank diagnose FOLDER-WITH-NCCL-AND-KERNEL-LOGS",
                "transport errors and Xids are printed there",
                ("xid-gpu-fault", "ib-link-flap"),
                "none",
            ),
            NextStep(
                "nvidia-smi; dmesg -T | grep -iE 'xid|mlx5|link'",
                "on every host of the group",
                ("xid-gpu-fault", "ib-link-flap"),
                "none",
            ),
        ),
        fix=(
            "The code agrees on all ranks: look at network, GPUs and drivers of the members.",
            "Run again with TORCH_NCCL_ENABLE_TIMING=1 and NCCL_DEBUG=INFO to see which rank's kernel never began.",
        ),
    )
