"""Ranks issue the same operations of one group in different orders.

## What it finds
Two members of a group brought different operations to the same place of its sequence, and each of them has (or
will have) the other's operation right behind it.

## Why it happens
Branches that call the same collectives in another order, iteration over a dict or set whose order differs
between processes, or threads and streams that race for one group.

## How it decides
The next few operations of the odd rank are a permutation of those of the majority, and both agree again behind
them. The minority is the culprit; without a majority all are named.

## Example
At `#15` rank 1 calls `broadcast` then `all_reduce`; ranks 0, 2 and 3 call `all_reduce` then `broadcast`.

## Fix
Issue collectives of one group in one order on all ranks: sort names before iterating, use one thread per group,
or give each thread a group of its own.

## Limits
NCCL compares nothing: it pairs whatever comes, so some of the operations may even have "completed".
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL104"
CAUSE = "collective-order"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if t.shape == "swapped"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    meeting = trouble.meeting
    sides = [
        f"{wording.ranks_text(party)} issued {wording.step(lineup, meeting.joined[party[0]])}"
        for party in meeting.parties[:3]
    ]
    odd = (
        wording.culprits_text(case, trouble.ranks)
        if trouble.ranks and not trouble.tie
        else "no side is in the majority"
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang" if trouble.hangs else "corruption",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(
                *wording.place(lineup, trouble.acted, trouble.ranks[0] if trouble.ranks else None),
                *wording.place(lineup, trouble.due),
            ),
        ),
        message=f"Different order in {lineup.groups[meeting.group].title}: {'; '.join(sides)} (odd: {odd}).",
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims if trouble.hangs else (),
        onset_ns=wording.onset(case, trouble),
        alternatives=(
            Alternative("conditional-collective", "one of the two operations may be missing rather than late"),
        ),
        fix=(
            (
                "Issue the operations of one group in the same order on every rank "
                "(no iteration over sets or dicts that differ, no racing threads)."
            ),
            "If two threads communicate, give each its own process group.",
        ),
    )
