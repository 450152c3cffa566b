"""Ranks wait for each other in calls of different groups that were never recorded.

## What it finds
Ranks that are each in the first call of a group, and wait for a member that is in a call of another group.

## Why it happens
Groups of some ranks are entered in an order that depends on the rank, or a member of such a group takes another branch
and never enters it.

## How it decides
NCCL makes the communicator of a group inside its first call: until every member has come it does not return, and the
recorder holds nothing of it. Processes under `whichrank run` say which group they are in. Where these waits, with the
recorded ones between them, form a circle, its ranks wait for each other forever. If all of them are in such first
calls, the order of groups differs. If one is in a recorded operation instead, either it left the group's call out or
the other has one too many: both are candidates, unless the script shows that the one comes to the group's call below
the line at which it waits (then too the order differs), or the stacks show that one side stands behind a loop in which
the other still is (it left the loop first), or one rank is alone against two or more that are all at one other line.
On Gloo, whose recorder holds such calls, the same is said of the first call of a group to which half of its members
have come: no majority speaks for either.

The name of a group counts the groups before it (`py-spy dump --locals` shows it). Ranks that make the same group under
different names have made different numbers of groups before, and wait for each other under different keys.

## Example
Rank 0 is in `all_reduce` of ranks 0 and 3, rank 3 in `broadcast` of all ranks.

## Fix
Enter groups in one global order on every rank, and let every member of a group take the same branches around its calls.

## Limits
Which of two ranks took the wrong branch the waits don't say.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.collectives import InOperation
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import unrecorded
from whichrank.timeline.collectives.unrecorded import GroupCycle, Leavers

CODE = "COLL139"
CAUSE = "process-group-order"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.events(InOperation) and case.lineup is None:
        return NotEvaluated("which group each rank is in (whichrank run), or flight-recorder dumps")
    if named := unrecorded.under_other_names(case):
        return [_other_names(case, named)]
    found = unrecorded.cycle(case)
    if found is None:
        return []
    if (gone := unrecorded.leavers(case, found)) is not None:
        return [_left_loop(case, gone)]
    if not found.all_in_groups and unrecorded.in_other_order(case, found):
        found = replace(found, all_in_groups=True)
    odd = None if found.all_in_groups else _odd_one(case, found)
    return [_finding(case, found) if odd is None else _alone(case, found, odd)]


def _other_names(case: Case, names: dict[int, str]) -> Finding:
    """Ranks make one group under the names of different ones: the minority made a group more or fewer before."""
    from whichrank.timeline.collectives.reported_mismatches import minority  # loads what dumps alone don't need

    odd = minority(names)
    sides = sorted({name: tuple(r for r in names if names[r] == name) for name in names.values()}.items())
    words = "; ".join(f"{wording.ranks_text(ranks)}: group {name}" for name, ranks in sides[:4])
    places = (case.activities[rank].place for rank in (odd or tuple(names))[:1])
    return Finding(
        code=CODE,
        cause="conditional-collective",
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(
            ranks=odd, candidates=() if odd else tuple(sorted(names)), code=tuple(place for place in places if place)
        ),
        message=f"Ranks make a group together after different numbers of groups before it: {words}.",
        evidence=wording.sat(case, (*odd[:2], *(rank for rank in names if rank not in odd))[:4]),
        victims=tuple(rank for rank in sorted(case.activities) if rank not in (odd or names)),
        alternatives=(Alternative(CAUSE, "they may make the same groups in another order"),),
        fix=fix("conditional-collective"),
    )


def _left_loop(case: Case, gone: Leavers) -> Finding:
    """One side is behind a loop in which the other still is: it made fewer rounds."""
    cause, other = (
        ("conditional-collective", "uneven-inputs") if gone.decided else ("uneven-inputs", "conditional-collective")
    )
    where = [case.activities[rank].place for rank in (gone.ranks[0], gone.still[0]) if rank in case.activities]
    at = [f" at {place}" if place else "" for place in where] or ["", ""]
    waits = "waits" if len(gone.ranks) == 1 else "wait"
    return Finding(
        code=CODE,
        cause=cause,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(ranks=gone.ranks, code=tuple(place for place in where if place)),
        message=f"{wording.culprits_text(case, gone.ranks).capitalize()} left the loop and {waits}{at[0]}; "
        f"{wording.ranks_text(gone.still)} are still in it{at[-1]}.",
        evidence=(
            *wording.sat(case, (*gone.ranks[:2], *gone.still[:2])),
            *_last_entries(case, (*gone.ranks[:2], *gone.still[:2])),
        ),
        victims=gone.still,
        alternatives=(Alternative(other, "why it made fewer rounds the stacks don't say"),),
        fix=fix(cause),
    )


def _finding(case: Case, cycle: GroupCycle) -> Finding:
    groups = unrecorded.waits(case)
    ranks = tuple(sorted(cycle.ranks if cycle.all_in_groups else _around_the_call(case, cycle, groups)))
    shown = cycle.ranks[:4] if cycle.all_in_groups else ranks[:4]
    parts = [_part(case, rank, groups.get(rank)) for rank in shown]
    places = (case.activities[rank].place for rank in shown if rank in case.activities)
    cause = CAUSE if cycle.all_in_groups else "conditional-collective"
    other = "conditional-collective" if cycle.all_in_groups else CAUSE
    return Finding(
        code=CODE,
        cause=cause,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(
            ranks=ranks if cycle.all_in_groups else (),
            candidates=() if cycle.all_in_groups else ranks,
            code=tuple(dict.fromkeys(place for place in places if place)),
        ),
        message=f"Ranks wait for each other in different groups: {'; '.join(parts)}.",
        evidence=(*wording.sat(case, cycle.ranks[:4]), *_last_entries(case, cycle.ranks[:4])),
        victims=tuple(rank for rank in range(case.world) if rank not in ranks),
        alternatives=(Alternative(other, "a member may have left the call out, or come to it in another order"),),
        fix=fix(cause),
    )


def _odd_one(case: Case, cycle: GroupCycle) -> int | None:
    """The only rank at its line, where two or more others are all at one other line."""
    groups = unrecorded.waits(case)
    around = _around_the_call(case, cycle, groups)
    inside = {rank for rank in around if rank in groups}
    places = {_place(case, rank) for rank in around}
    few, many = sorted((inside, around - inside), key=len)
    return min(few) if len(few) == 1 and len(many) > 1 and len(places) == 2 and None not in places else None


def _alone(case: Case, cycle: GroupCycle, odd: int) -> Finding:
    """One against all others: it calls what they do not, or leaves out what they call."""
    groups = unrecorded.waits(case)
    others = tuple(sorted(_around_the_call(case, cycle, groups) - {odd}))
    calls = odd in groups
    cause = "rank0-only-collective" if calls and odd == min(groups[odd]) else "conditional-collective"
    place = _place(case, odd)
    what = "calls a collective that the others do not" if calls else "leaves out a collective that the others call"
    found = _finding(case, cycle)
    return replace(
        found,
        cause=cause,
        subject=Subject(ranks=(odd,), code=(place,) if isinstance(place, CodePlace) else ()),
        message=f"{wording.culprits_text(case, (odd,)).capitalize()} {what}: "
        f"{_part(case, odd, groups.get(odd))}; {_part(case, others[0], groups.get(others[0]))}, "
        f"as {wording.ranks_text(others)} do.",
        victims=others,
        alternatives=(Alternative("process-group-order", "it may come to the others' operation later"),),
        fix=fix(cause),
    )


def _around_the_call(case: Case, cycle: GroupCycle, groups: dict[int, tuple[int, ...]]) -> set[int]:
    """The ranks in the first call of a group at one place, and the members that they wait for there: both sides."""
    places = {_place(case, rank) for rank in cycle.ranks if rank in groups}
    there = {rank for rank in groups if _place(case, rank) in places}
    return there.union(*(groups[rank] for rank in there))


def _place(case: Case, rank: int) -> object:
    return case.activities[rank].place if rank in case.activities else None


def _last_entries(case: Case, ranks: tuple[int, ...]) -> list[Ref]:
    """What the recorder holds last of each."""
    if case.lineup is None:
        return []
    return [ref for rank in ranks if (ref := wording.last_entry(case.lineup, rank)) is not None]


def _part(case: Case, rank: int, members: tuple[int, ...] | None) -> str:
    doing = case.activities.get(rank)
    where = f" at {doing.place}" if doing is not None and doing.place is not None else ""
    if members is None:
        return f"rank {rank} waits in a recorded operation{where}"
    said = (e.op for e in case.events(InOperation) if e.rank == rank and e.ranks)
    op = next(said, "the first call")
    return f"rank {rank} is in {op} of {wording.ranks_text(members)}{where}"
