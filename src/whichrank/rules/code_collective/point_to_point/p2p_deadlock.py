"""Point-to-point operations wait for each other in a cycle.

## What it finds
Ranks that each wait in a send or recv whose partner is, in turn, waiting in another one of the circle.

## Why it happens
Every rank receives first (or sends first, with messages too large to be buffered): `recv` from the left
neighbour before `send` to the right one on all ranks of a ring, or two stages that both send first.

## How it decides
All waits of the cycle are sends and receives, and none of the ranks left its earlier path. Messages that were posted as
batches (`batch_isend_irecv`) can't wait for each other's order: there the ranks name different partners, and every rank
whose partner does not name it is a candidate (p2p-unmatched).

## Example
Rank 0 waits in `recv 0<-1`, rank 1 in `recv 1<-0`.

## Limits
Gloo records no send or recv at all, and NCCL records none that hangs while its pair's communicator is made (the
first one between two ranks): such a cycle shows in stacks, not in dumps.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.channels import in_batch
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL106"
CAUSE = "p2p-deadlock"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_unmatched(case, t) or _finding(case, t) for t in case.troubles if t.shape == "p2p-cycle"]


def _unmatched(case: Case, trouble: Trouble) -> Finding | None:
    """Messages that were posted as batches can't wait for each other's order: the ranks name other partners."""
    lineup = wording.lineup_of(case)
    rows = [meeting.joined[rank] for rank, meeting, _ in trouble.cycle if rank in meeting.joined]
    if not rows or not all(in_batch(lineup, row) for row in rows):
        return None
    open_ones = [meeting for meeting in case.meetings.pending if meeting.p2p and meeting.absent]
    ranks = tuple(sorted({rank for meeting in open_ones for rank in (*meeting.joined, *meeting.absent)}))
    posted = "; ".join(f"rank {lineup.rank[row]} posted {wording.step(lineup, row)}" for row in rows[:6])
    return Finding(
        code=CODE,
        cause="p2p-unmatched",
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="records",
        subject=Subject(candidates=ranks, code=wording.place(lineup, rows[0], int(lineup.rank[rows[0]]))),
        message=f"Ranks exchange messages with partners that chose other partners: {posted}.",
        evidence=wording.evidence(lineup, trouble),
        victims=tuple(rank for rank in trouble.victims if rank not in ranks),
        onset_ns=wording.onset(case, trouble),
        fix=(
            "Compute the pairs of an exchange from values that all ranks share: the step, or a generator of its own.",
        ),
    )


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    links = wording.certificate(lineup, trouble)
    steps = "; ".join(f"rank {link.rank} waits in {link.waits}" for link in links[:6])
    code = tuple(link.code for link in links if link.code is not None)
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(ranks=trouble.ranks, code=code[:4]),
        message=f"Point-to-point operations wait for each other: {steps}.",
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims,
        onset_ns=wording.onset(case, trouble),
        certificate=links,
        alternatives=(Alternative("p2p-unmatched", "one half may have been left out rather than postponed"),),
        fix=fix(CAUSE),
    )
