"""Ranks use two or more groups in different orders: a cycle of waits across groups.

## What it finds
One rank waits in an operation of group A while others, in an operation of group B, wait for it; and they would
come to A only after B.

## Why it happens
Code that enters the groups in an order that depends on the rank, the stage or on timing; overlapping groups used
from several threads; on NCCL also two groups' operations queued in different orders on the GPUs.

## How it decides
The wait-for graph over all groups has a cycle. The certificate lists, for each rank in it, what it waits in and
what the others hold open for it. The deviating rank is the one against whose order more members of both groups
speak; if there are none, every member of the cycle is named.

## Example
Rank 5 waits in `all_reduce #7` of tp at `layer.py:31`; ranks 4, 6, 7 wait in `all_reduce #12` of dp at `optim.py:90`.

## Fix
Enter groups in one global order on every rank; finish (wait for) one group's operation before the next group's is
issued; with several groups in flight on one GPU, keep the launch order the same on all ranks.

## Limits
If the missing operation would never have come, the same picture is a skipped collective.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL105"
CAUSE = "process-group-order"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if t.shape == "crossed"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    sits = trouble.other or trouble.meeting
    here, there = sits.joined[min(sits.joined)], trouble.meeting.joined[min(trouble.meeting.joined)]
    if trouble.acted is not None:
        here = trouble.acted
    waiting = [r for r in trouble.meeting.joined if r != int(lineup.rank[here])]
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(*wording.place(lineup, here, int(lineup.rank[here])), *wording.place(lineup, there)),
        ),
        message=(
            f"Groups used in different orders: {wording.who(case, int(lineup.rank[here]))} is in "
            f"{wording.step(lineup, here)}, while {wording.wait_text(waiting)} for it in {wording.step(lineup, there)}."
        ),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        certificate=wording.certificate(lineup, trouble),
        alternatives=(
            Alternative("conditional-collective", "the missing operation may have been skipped rather than postponed"),
        ),
        fix=(
            (
                "Use the groups in one order on every rank; "
                "wait for one group's operation before issuing the next group's."
            ),
            "Compare the two code lines: one path takes them the other way round.",
        ),
    )
