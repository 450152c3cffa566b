"""A process group was created by some ranks only.

## What it finds
Ranks of a job that has trained wait in `new_group` (or in what calls it), and the groups that the ranks hold differ:
some ranks made a group that the others never counted.

## Why it happens
`new_group` is a collective over all ranks of the job, members or not. Under `if rank in members:` only some ranks
call it; from then on the ranks count their groups differently, and the next group that all of them make never comes
together.

## How it decides
By the stacks of at least two ranks inside the creation of a group after collectives have finished, or of all members of
a group in its first call, in which NCCL creates it. Of the ranks that make it, the few are named that have counted more
groups than the others. Else who holds a group that others lack is named, or where that is most ranks, who lacks it; so
is who stands in the same function as such a rank. The tables of the flight recorder say which groups a rank holds.
Where nobody holds more than others, and most ranks wait in `new_group` for a few that wait elsewhere, those few are
named; with `use_local_synchronization` the members are counted that the call was given. Two sides of one size are both
told.

## Example
Ranks 1 and 3 call `new_group([1, 3])` under `if rank in members:`; all four ranks then stand in
`new_group([0, 1, 2, 3])` and wait for each other.

## Fix
Call `new_group` on every rank, in the same order, and keep the result on the members alone.

## Limits
Without dumps nothing says who holds which group: then nobody is named.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import unrecorded
from whichrank.timeline.collectives.stuck import stack_ref

CODE = "COLL135"
CAUSE = "conditional-collective"

_FIX = (
    "Call new_group on every rank of the job, in the same order, also on ranks that are not members.",
    "Keep the returned group on the members alone; pass use_local_synchronization=True if only members can call it.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.stacks:
        return NotEvaluated("stacks of the ranks (py-spy, faulthandler or gdb)")
    making = unrecorded.in_new_group(case) or _in_one_first_call(case)
    if not making:
        return []
    if ended := unrecorded.ended_before_new_group(case):
        return [_gone(case, making, ended)]
    held = _held(case)
    if ahead := _ahead(held, making):
        return [_finding(case, making, tuple(sorted(ahead)))]
    holders = _holders(held)
    together = {_function(case, rank) for rank in holders} - {
        _function(case, rank) for rank in case.activities if rank not in holders and rank not in _near(case, holders)
    }
    ranks = tuple(sorted(holders | {r for r in case.activities if _function(case, r) in together - {None}}))
    if not holders and (absent := unrecorded.without_new_group(case)):
        return [_not_called(case, making, absent)]
    elsewhere = [
        rank for rank, activity in case.activities.items() if rank not in making and activity.doing == "waiting"
    ]
    if not holders and elsewhere:
        return [_sides(case, making, elsewhere)]
    if len(ranks) >= case.world or not holders:
        return [_finding(case, making, ())]
    return [_finding(case, making, ranks)]


def _in_one_first_call(case: Case) -> list[int]:
    """All members of a group, where all of them are in its first call, in which NCCL makes it: nobody is missing."""
    waits = unrecorded.waits(case)
    whole = [members for members in waits.values() if all(waits.get(rank) == members for rank in members)]
    return list(whole[0]) if whole and _holders(_held(case)) else []


def _held(case: Case) -> dict[int, set[str]]:
    """By rank, the names of the groups that its recorders know."""
    held: dict[int, set[str]] = {}
    for dump in case.lineup.dumps if case.lineup is not None else ():
        if dump.rank is not None:
            held.setdefault(dump.rank, set()).update(group.name for group in dump.groups)
    return held


def _holders(held: dict[int, set[str]]) -> set[int]:
    """Ranks that hold a group which others lack."""
    everybody = set.intersection(*held.values()) if held else set()
    return {rank for rank, names in held.items() if names - everybody}


def _ahead(held: dict[int, set[str]], making: list[int]) -> set[int]:
    """Those of the ranks that make a group together which have counted further. Who is not a member of a group does not
    hold it, and counts it all the same."""
    numbers = {rank: [int(name) for name in held[rank] if name.isdecimal()] for rank in making if rank in held}
    counted = {rank: max(found, default=0) for rank, found in numbers.items()}
    furthest = max(counted.values(), default=0)
    ahead = {rank for rank, count in counted.items() if count == furthest}
    return ahead if 2 * len(ahead) < len(counted) else set()


def _near(case: Case, holders: set[int]) -> set[int]:
    """Ranks in the same function as a rank that holds the group, while somebody is in another one."""
    inside = {_function(case, rank) for rank in holders}
    near = {rank for rank in case.activities if _function(case, rank) in inside}
    return near if len(near) < len(case.activities) else set()


def _function(case: Case, rank: int) -> str | None:
    activity = case.activities.get(rank)
    return activity.place.function if activity is not None and activity.place is not None else None


def _gone(case: Case, making: list[int], ended: dict[int, Ref]) -> Finding:
    made = case.activities[making[0]].place
    ranks = tuple(sorted(ended))
    message = (
        f"{wording.ranks_text(ranks).capitalize()} ended well while {wording.ranks_text(making)} wait in the making of "
        f"a process group{f' at {made}' if made is not None else ''}, which takes every rank."
    )
    found = _found(case, message, ranks, (made,) if made is not None else (), tuple(making[:2]))
    return replace(
        found,
        evidence=(*ended.values(), *found.evidence)[:4],
        victims=tuple(rank for rank in range(case.world) if rank not in ended),
        alternatives=(Alternative("missing-rank-at-init", "the group may be meant for fewer ranks"),),
        fix=("Let every rank reach the new group: decide on all ranks together whether one has nothing to do.", *_FIX),
    )


def _not_called(case: Case, making: list[int], absent: tuple[int, ...]) -> Finding:
    made, elsewhere = case.activities[making[0]].place, case.activities[absent[0]].place
    verb = "waits" if len(absent) == 1 else "wait"
    message = (
        f"{wording.ranks_text(absent).capitalize()} {verb} at {elsewhere or 'another call'}, and did not call "
        f"new_group, in which {wording.ranks_text(making)} wait{f' at {made}' if made is not None else ''}."
    )
    code = tuple(place for place in (elsewhere, made) if place is not None)
    return _found(case, message, absent, code, (*absent[:2], *making[:2]))


def _sides(case: Case, making: list[int], elsewhere: list[int]) -> Finding:
    """Nothing says whether some left out the creation of the group, or the others came to it too early."""
    places = [case.activities[ranks[0]].place for ranks in (making, elsewhere)]
    at = [f" at {place}" if place is not None else "" for place in places]
    message = (
        f"The ranks went different ways: {wording.ranks_text(making)} wait in new_group{at[0]}, "
        f"{wording.ranks_text(elsewhere)} wait{at[1]}. Nothing at hand says which side is right."
    )
    code = tuple(place for place in places if place is not None)
    found = _found(case, message, (), code, (*making[:2], *elsewhere[:2]))
    return replace(found, subject=replace(found.subject, candidates=tuple(sorted((*making, *elsewhere)))))


def _finding(case: Case, making: list[int], ranks: tuple[int, ...]) -> Finding:
    at = case.activities[making[0]].place
    where = f" at {at}" if at is not None else ""
    lacking = tuple(rank for rank in range(case.world) if rank not in ranks) if 2 * len(ranks) > case.world else ()
    ranks = lacking or ranks
    who = wording.ranks_text(ranks).capitalize() if ranks else "Some ranks"
    verb = "has" if len(ranks) == 1 else "have"
    did, others_did = ("not created", "did") if lacking else ("created", "did not")
    inside = "in new_group" if case.activities[making[0]].doing == "starting" else "in the first call of a group"
    places = [case.activities[rank].place for rank in (*ranks, *making) if rank in case.activities]
    code = tuple(dict.fromkeys(CodePlace(p.file, p.line, p.function) for p in places if p is not None))[:3]
    shown = [*ranks[:2], *[rank for rank in making if rank not in ranks][:2], *making[:1]]
    message = (
        f"{who} {verb} {did} a process group that the other ranks {others_did}; {wording.ranks_text(making)} now wait "
        f"{inside}{where} and count their groups differently."
    )
    return _found(case, message, ranks, code, shown)


def _found(
    case: Case, message: str, ranks: tuple[int, ...], code: tuple[CodePlace, ...], shown: Iterable[int]
) -> Finding:
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS if ranks else Grade.HINTS,
        subject=Subject(ranks=ranks, code=code),
        message=message,
        evidence=tuple(stack_ref(case, rank) for rank in dict.fromkeys(shown) if rank in case.stacks),
        victims=tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else (),
        fix=_FIX,
    )
