"""Ranks wait for each other in sends and receives, by the calls that they recorded.

## What it finds
Ranks of which each is in a send or recv with the next, and the last with the first, where no recorder holds messages.

## Why it happens
Every rank receives first (or sends first, with messages too large to be buffered): both neighbours of an exchange
call `recv` before `send`, a ring receives from the left before it sends to the right.

## How it decides
Processes under `whichrank run` record which peer they send to or receive from, and their stacks say that they are in
it. A circle of such waits can't end by itself. Where one of two is already in a later part of the program, it has
left its half out: that is not a deadlock but an unmatched message.

## Example
Rank 0 is in `recv from rank 1`, rank 1 is in `recv from rank 0`.

## Limits
Messages that are posted without waiting (`isend`, `irecv`) and waited for later show no peer. Which part of a program
is the later one is read off the lines of a function that both ranks are in.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import point_to_point
from whichrank.timeline.collectives.point_to_point import Circle

CODE = "COLL131"
CAUSE = "p2p-deadlock"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not point_to_point.sitting(case):
        return NotEvaluated("per-rank send/recv peers (whichrank run, or dumps and stacks)")
    circles = [c for c in point_to_point.circles(case) if c.past is None and not c.lost]
    return [_finding(case, circles)] if circles else []


def _finding(case: Case, circles: list[Circle]) -> Finding:
    """One for all circles: pairs that block each other for one reason are many circles."""
    sits = point_to_point.sitting(case)
    members = [rank for circle in circles for rank in circle.ranks]
    steps = "; ".join(f"rank {rank} is in {point_to_point.told(sits[rank])}" for rank in members[:6])
    sure = [rank for circle in circles if point_to_point.are_symmetric(case, circle) for rank in circle.ranks]
    whose = Subject(ranks=tuple(sorted(sure))) if sure else Subject(candidates=tuple(sorted(members)))
    places = dict.fromkeys(case.activities[rank].place for rank in members[:4] if rank in case.activities)
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=replace(whose, code=tuple(place for place in places if place)),
        message=f"Point-to-point operations wait for each other: {steps}.",
        evidence=wording.sat(case, members[:4]),
        victims=tuple(sorted({rank for circle in circles for rank in circle.victims} - set(members))),
        alternatives=(Alternative("p2p-unmatched", "one half may have been left out rather than postponed"),),
        fix=fix(CAUSE),
    )
