"""Ranks that wait in the first call of a group, of which no recorder of NCCL holds anything.

NCCL makes the communicator of a group in its first call, inside that call: until every member has come, the call does
not return and is not recorded. Processes under `whichrank run` say in which group they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.records.dump import Frame
from whichrank.records.events.collectives import MESSAGES, InOperation, StoodStill
from whichrank.records.events.launchers import ProcessLeft
from whichrank.records.events.startup import GroupTeardown
from whichrank.records.outline import Loop
from whichrank.records.stack import is_user_frame, main_thread
from whichrank.timeline.collectives.troubles.loops import left
from whichrank.timeline.collectives.waits import build_graph

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_FINISHED = 4
"""So many operations have finished in a job that is past its start."""
_FURTHER = ("new_group", "split_group")
BY_ABSENCE = ("stopped", "added", "alone", "skipped", "crossed")
"""Shapes of troubles that a circle through first calls explains better."""


class GroupCycle(Struct, frozen=True):
    """Ranks that wait for each other in different groups: each for the next, the last for the first."""

    ranks: tuple[int, ...]
    all_in_groups: bool
    """Every one of them waits in the first call of a group of some ranks; otherwise one is in a recorded operation."""


def waits(case: Case) -> dict[int, tuple[int, ...]]:
    """Rank -> members of the group in whose call it is, by its own words and its stack, where nothing was recorded."""
    if case.goes_on:
        return {}
    pending = {rank for meeting in case.meetings.pending for rank in meeting.pending}
    found = _even_first_calls(case)
    for event in case.events(InOperation):
        members, rank = event.ranks, event.rank
        if rank is None or rank not in members or rank in pending or event.op in MESSAGES:
            continue
        doing = case.activities.get(rank)
        if doing is None or (doing.doing, doing.collective) == ("waiting", event.op):
            found[rank] = members
    return found


def in_new_group(case: Case) -> list[int]:
    """Ranks that wait in `new_group` for others, in a job that is past its start: by its operations, or by stacks."""
    finished = int(case.lineup.done.sum()) if case.lineup is not None else 0
    making = [rank for rank, activity in case.activities.items() if activity.doing == "starting"]
    past = finished >= _FINISHED or (making and all(_has_a_group(case, rank) for rank in making))
    return making if past and len(making) > 1 else []


def _has_a_group(case: Case, rank: int) -> bool:
    """Whether a rank that makes a group makes a further one: `new_group` needs that of the whole job."""
    thread = main_thread(case.stacks[rank]) if rank in case.stacks else None
    frames = thread.frames if thread is not None else ()
    return any(frame.function in _FURTHER and frame.file.endswith("distributed_c10d.py") for frame in frames)


def ended_before_new_group(case: Case) -> dict[int, Ref]:
    """Ranks that ended well while all others make a group, or stand between the old one and it; with what says so."""
    making = in_new_group(case)
    ended = {event.rank: event.ref for event in case.events(ProcessLeft) if event.rank is not None}
    between = {event.rank for event in case.events(GroupTeardown) if event.what == "destroyed"}
    stand = {event.rank for event in case.events(StoodStill)} | between | set(making)
    everybody = set(range(case.world)) == stand | ended.keys()
    return ended if making and everybody and not stand & ended.keys() else {}


def without_new_group(case: Case) -> tuple[int, ...]:
    """The few that wait elsewhere while all others wait in `new_group`, which takes every rank of the job, or with
    `use_local_synchronization` the members that it is given."""
    doing = {rank: activity.doing for rank, activity in case.activities.items()}
    given = {e.ranks for e in case.events(InOperation) if e.op == "new_group" and e.ranks}
    needed = given.pop() if len(given) == 1 else ()
    others = tuple(rank for rank in needed or range(case.world) if doing.get(rank) != "starting")
    waiting = all(doing.get(rank) == "waiting" for rank in others)
    return others if waiting and 2 * len(others) < len(needed or range(case.world)) else ()


def under_other_names(case: Case) -> dict[int, str]:
    """The names under which ranks make a group of the same members, where those differ."""
    making = {e.rank: e for e in case.events(InOperation) if e.rank is not None and e.op == "new_group" and e.name}
    names = {rank: event.name for rank, event in making.items()}
    one = len({event.ranks for event in making.values()}) == 1
    return names if one and len(set(names.values())) > 1 and not case.goes_on else {}


def _even_first_calls(case: Case) -> dict[int, tuple[int, ...]]:
    """The same where a recorder holds the first call of a group (Gloo's does) and half of its members have come.

    Nothing was ever different before, and no majority says whether the call is one too many or was left out."""
    found = {}
    for meeting in case.meetings.pending:
        if case.lineup is not None and meeting.seq == 1 and not meeting.p2p and not meeting.unseen:
            members = tuple(sorted((*meeting.joined, *meeting.absent)))
            if len(members) < case.world and len(meeting.joined) == len(meeting.absent):
                found.update(dict.fromkeys(meeting.pending, members))
    return found


def cycle(case: Case) -> GroupCycle | None:
    """The shortest circle of such waits, with those in recorded operations between them."""
    unrecorded = waits(case)
    awaited = {rank: {m for m in members if unrecorded.get(m) != members} for rank, members in unrecorded.items()}
    if not unrecorded:
        return None
    graph = build_graph(case.meetings)
    for rank in graph.waits_in:
        awaited.setdefault(rank, set()).update(*(others for _, others in graph.awaited_by(rank)))
    best: tuple[int, ...] | None = None
    for start in unrecorded:
        path = _way_back(awaited, start)
        if path and (best is None or len(path) < len(best)):
            best = path
    return GroupCycle(best, all(rank in unrecorded for rank in best)) if best else None


class Leavers(Struct, frozen=True):
    """Ranks that are in a call behind a loop in which the other members of its group still are."""

    ranks: tuple[int, ...]
    still: tuple[int, ...]
    decided: bool
    """The loop has a condition or a break: it was left on a decision, and not for want of data."""


def leavers(case: Case, cycle: GroupCycle) -> Leavers | None:
    """Who of the circle left a loop before the others, by their stacks and the loops of the script."""
    there, still = _members(case, cycle)
    loops = [_left(case, one, other) for one in there for other in still]
    if not loops or not all(loops):
        return None
    return Leavers(tuple(there), tuple(still), any(loop.exits for found in loops for loop in found))


def in_other_order(case: Case, cycle: GroupCycle) -> bool:
    """Whether the members that are not in the call come to it behind the line at which they wait, by the script."""
    there, still = _members(case, cycle)
    return bool(there and still) and all(_comes_to(case, other, there[0]) for other in still)


def _members(case: Case, cycle: GroupCycle) -> tuple[list[int], list[int]]:
    """The members of the group that are in its call, and those that are not."""
    groups = waits(case)
    members = next((groups[rank] for rank in cycle.ranks if rank in groups), ())
    there = [rank for rank in members if groups.get(rank) == members]
    return there, [rank for rank in members if groups.get(rank) != members]


def _comes_to(case: Case, rank: int, there: int) -> bool:
    """Whether a function of the rank's own calls, below its line, the one in which the other waits.

    In a function that both are in, the rank may have left the call out and be in the next round."""
    theirs = [(f.file, case.outline.function_of(f.file, f.line)) for f in filter(is_user_frame, case.stands(there))]
    if not theirs or theirs[0][1] is None:
        return False
    file, (begin, _) = theirs[0][0], theirs[0][1]
    for frame in filter(is_user_frame, _waits_in(case, rank)):
        own = case.outline.function_of(frame.file, frame.line)
        if own is None or frame.file != file or (file, own) in theirs:
            continue
        if any(first == begin and frame.line < line <= own[1] for line, first in case.outline.calls.get(file, ())):
            return True
    return False


def _left(case: Case, one: int, other: int) -> list[Loop]:
    return left(case.stands(one), _waits_in(case, other), case.outline.loops)


def _waits_in(case: Case, rank: int) -> Sequence[Frame]:
    """Where a rank issued what it waits for: on a GPU it goes on from there, and stands at any later line."""
    lineup = case.lineup
    rows = lineup.rows(rank) if lineup is not None else range(0)
    issued = next((lineup.call_of(row).stack for row in rows if lineup is not None and not lineup.done[row]), ())
    return issued if any(map(is_user_frame, issued)) else case.stands(rank)


def _way_back(awaited: dict[int, set[int]], start: int) -> tuple[int, ...]:
    """The shortest path along the waits from a rank to itself."""
    before: dict[int, int] = {}
    front = [start]
    while front:
        following = []
        for rank in front:
            for other in sorted(awaited.get(rank, ())):
                if other == start:
                    path = [rank]
                    while path[-1] != start:
                        path.append(before[path[-1]])
                    return tuple(reversed(path))
                if other not in before:
                    before[other] = rank
                    following.append(other)
        front = following
    return ()
