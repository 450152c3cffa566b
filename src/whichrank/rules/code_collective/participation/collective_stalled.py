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
An all_to_all whose members together expect more than they send, or less, is reported as sizes that don't fit.
The recorder of NCCL keeps no roots. On one host, where no network can fail, an operation with a root that stalls so is
reported as ranks that name different roots.
The dumps don't hold what the transport does; NCCL's log and the fabric counters do.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.dump import COMPLETED
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.balance import imbalance
from whichrank.timeline.collectives.signature import has_root
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL111"
CAUSE = "collective-stalled"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    stalled = [trouble for trouble in case.troubles if trouble.shape == "stalled"]
    return [_by_balance(case, t, _by_root(case, t, _finding(case, t))) for t in stalled]


def _by_balance(case: Case, trouble: Trouble, finding: Finding) -> Finding:
    """The same of an all_to_all in which more is expected than sent, or less: the split sizes do not fit."""
    lineup = wording.lineup_of(case)
    uneven = imbalance(lineup, trouble.meeting)
    if uneven is None:
        return finding
    ranks = () if uneven.odd is None else (uneven.odd,)
    who = f"; {wording.ranks_text(ranks)} alone brought another size than the others" if ranks else ""
    row = next(iter(trouble.meeting.joined.values()))
    return replace(
        finding,
        cause="size-mismatch",
        subject=replace(finding.subject, ranks=ranks),
        victims=tuple(rank for rank in finding.victims if rank not in ranks),
        message=(
            f"The split sizes of {wording.step(lineup, row)} don't fit: its members send {uneven.sent:,} elements "
            f"together and expect {uneven.expected:,}{who}."
        ),
        fix=(
            "Compute the output splits from what the senders really send: exchange the counts after the last change.",
            "Print input_split_sizes and output_split_sizes of every rank before this call.",
        ),
        alternatives=(Alternative("conditional-collective", "a rank may be in another all_to_all of the program"),),
    )


def _by_root(case: Case, trouble: Trouble, finding: Finding) -> Finding:
    """The same of an operation whose roots are not recorded: ranks that name different ones wait for each other so."""
    row = next(iter(trouble.meeting.joined.values()))
    called = wording.lineup_of(case).signature_of(row)
    if not has_root(called.op) or called.root is not None:
        return finding
    if len(case.people.hosts()) != 1:
        unseen = Alternative("root-mismatch", "the recorder keeps no roots; they may differ between ranks")
        return replace(finding, alternatives=(unseen, *finding.alternatives))
    lineup, meeting = wording.lineup_of(case), trouble.meeting
    open_ones = meeting.pending if meeting.finished else ()
    # Its call makes a connection that nobody else makes: the others' have returned.
    inside = tuple(rank for rank in open_ones if lineup.state[meeting.joined[rank]] == COMPLETED)
    ranks = inside if len(inside) == 1 else ()
    one = f"; the call of {wording.ranks_text(ranks)} alone has not returned" if ranks else ""
    return replace(
        finding,
        cause="root-mismatch",
        grade=Grade.HINTS,
        kind="records",
        subject=replace(finding.subject, ranks=ranks, candidates=() if ranks else open_ones),
        victims=tuple(rank for rank in finding.victims if rank not in ranks),
        message=(
            f"All members have joined {wording.step(lineup, row)}, and it does not finish{one}. "
            "The recorder keeps no roots: ranks that name different roots wait for each other like this."
        ),
        fix=(
            "Log the root that every rank passes to this call: it must be the same global rank on all members.",
            "Run again with whichrank run --guard=strict: it compares the roots and names the rank.",
        ),
        alternatives=(Alternative(CAUSE, "the network or a GPU may not move the data"), *finding.alternatives),
    )


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
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(code=wording.place(lineup, row)),
        message=(
            f"All members have joined {wording.step(lineup, row)} with the same arguments and it does not finish{some}."
        ),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        alternatives=(
            Alternative("gpu-kernel-stuck", "a kernel before it on one GPU may not end"),
            Alternative("firewall", "the path between two hosts may drop traffic"),
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
