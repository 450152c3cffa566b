"""Ranks wait in one collective with different roots, by the calls that they recorded.

## What it finds
Members of a group that sit in the same broadcast, reduce, gather or scatter and name different roots. Gloo then waits
forever, and its recorder holds no root.

## Why it happens
A root computed from a local value, the rank within a group taken for the global one (or the other way round).

## How it decides
Processes under `whichrank run` say which root they gave; the dumps say which of them are in the same operation of the
same group. The minority is the culprit; where there is none, ranks that wait at the same line in another turn of its
loop are counted too. A root of a reduce or gather that has finished without the others did not take itself for it:
those who name it are the odd ones. Else, without a majority, nobody is named. Without dumps the stacks of
`py-spy dump --locals` tell the same, where ranks are in one call at one line.

## Example
Ranks 0, 1 and 3 are in `broadcast from 0`, rank 2 is in `broadcast from 2`; all are in #26 of default_pg.

## Limits
Only what hangs shows: NCCL goes on with wrong numbers, and a root that was given as `group_src` is not told.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.collectives import MESSAGES, InOperation
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.reported_mismatches import minority

CODE = "COLL133"
CAUSE = "root-mismatch"

_COLLECTING = ("reduce", "gather")
"""What ends on its root only with the parts of all others."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    said = {e.rank: e for e in case.events(InOperation) if e.rank is not None and e.op not in MESSAGES}
    if not said:
        return NotEvaluated("words of the ranks about the roots that they gave (whichrank run, py-spy dump --locals)")
    if case.lineup is None:
        return _at_one_line(case, said)
    if case.goes_on:
        return []
    for meeting in case.meetings.pending:
        told = {rank: said[rank] for rank in sorted(meeting.pending) if rank in said}
        roots = {rank: f"{event.peer}" for rank, event in told.items()}
        if not meeting.p2p and not meeting.disagrees and len(set(roots.values())) > 1:
            odd = minority(roots) or _outvoted(case, said, roots) or _at_no_root(case, meeting, roots)
            return [_finding(case, meeting, told, roots, odd)]
    return []


def _at_one_line(case: Case, said: dict[int, InOperation]) -> list[Finding]:
    """By the stacks alone: ranks that are in the same call at the same line."""
    together: dict[tuple[str, CodePlace], dict[int, InOperation]] = {}
    for rank, event in sorted(said.items()):
        doing = case.activities.get(rank)
        if event.peer is not None and doing is not None and doing.doing == "waiting" and doing.place is not None:
            together.setdefault((event.op, doing.place), {})[rank] = event
    for (op, place), told in together.items():
        roots = {rank: f"{event.peer}" for rank, event in told.items()}
        if len(set(roots.values())) > 1:
            odd = minority(roots)
            victims = tuple(rank for rank in sorted(case.activities) if rank not in (odd or roots))
            return [_told(case, f"{op} at {place}", told, roots, odd, victims)]
    return []


def _at_no_root(case: Case, meeting: Meeting, roots: dict[int, str]) -> tuple[int, ...]:
    """Those who send to a root that has finished without the others: it did not take itself for the root."""
    row = meeting.joined[min(meeting.joined)]
    if wording.lineup_of(case).call_of(row).op.rpartition(":")[2] not in _COLLECTING:
        return ()
    gone = {f"{rank}" for rank in meeting.joined if rank not in meeting.pending}
    odd = tuple(rank for rank, root in roots.items() if root in gone)
    return odd if len(odd) < len(roots) else ()


def _outvoted(case: Case, said: dict[int, InOperation], roots: dict[int, str]) -> tuple[int, ...]:
    """The minority, with those that are one turn of the loop behind or ahead: they give the same root at that place."""
    places = {case.activities[rank].place for rank in roots if rank in case.activities}
    beside = {r: f"{e.peer}" for r, e in said.items() if r in case.activities and case.activities[r].place in places}
    return tuple(rank for rank in minority({**beside, **roots}) if rank in roots)


def _finding(
    case: Case, meeting: Meeting, told: dict[int, InOperation], roots: dict[int, str], odd: tuple[int, ...]
) -> Finding:
    lineup = wording.lineup_of(case)
    row = meeting.joined[min(meeting.joined)]
    victims = tuple(rank for rank in sorted(meeting.joined) if rank not in (odd or roots))
    found = _told(case, wording.step(lineup, row), told, roots, odd, victims)
    return replace(found, evidence=(*found.evidence, wording.proof(lineup, row)))


def _told(
    case: Case, what: str, told: dict[int, InOperation], roots: dict[int, str], odd: tuple[int, ...],
    victims: tuple[int, ...],
) -> Finding:  # fmt: skip
    sides = sorted({root: tuple(r for r in roots if roots[r] == root) for root in roots.values()}.items())
    words = "; ".join(f"{wording.ranks_text(ranks)}: root {root}" for root, ranks in sides[:4])
    shown = (*odd[:2], *(rank for rank in told if rank not in odd))
    places = (case.activities[rank].place for rank in odd if rank in case.activities)
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.PROVES,
        kind="stacks",
        subject=Subject(
            ranks=odd,
            candidates=() if odd else tuple(sorted(roots)),
            code=tuple(CodePlace(p.file, p.line, p.function, odd[0]) for p in places if p is not None)[:1],
        ),
        message=f"Ranks name different roots in {what}: {words}.",
        evidence=tuple(told[rank].ref for rank in shown[:4]),
        victims=victims,
        fix=fix(CAUSE),
    )
