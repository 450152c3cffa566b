"""Ranks that wait for each other in a circle over several groups: who closed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from whichrank.timeline.collectives.channels import direction
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.program import Deviation, Programs, place_of
from whichrank.timeline.collectives.troubles.disagreement import LOOK_BACK, rows_of_kind, sibling_votes
from whichrank.timeline.collectives.troubles.loops import fork
from whichrank.timeline.collectives.troubles.one_line import common_lines, lines_of_both, path
from whichrank.timeline.collectives.troubles.trouble import Shape, Trouble
from whichrank.timeline.collectives.waits import WaitGraph

_OFTEN, _NEARLY_ALL = 3, 0.9
"""How often a number of messages was seen, of how many, before it is the usual one."""


def open_meetings(graph: WaitGraph, part: Sequence[int]) -> list[Meeting]:
    """The meetings that make up a circle: somebody of it waits there for somebody of it who has not come."""
    inside = set(part)
    found: list[Meeting] = []
    for rank in part:
        for meeting in graph.heads.get(rank, ()):
            if inside & set(meeting.absent) and meeting not in found:
                found.append(meeting)
    return found


def _blamed(lineup: Lineup, meetings: Sequence[Meeting], part: set[int]) -> Counter[int]:
    """Votes against ranks: each meeting's minority by the size of its defeat; siblings where there is none.

    Who sits where siblings of its group have been does as they did, and is late elsewhere for that alone."""
    votes: Counter[int] = Counter()
    excused: set[int] = set()
    for meeting in meetings:
        present, absent = set(meeting.joined), set(meeting.absent)
        if meeting.p2p:
            continue
        if len(present) == len(absent):
            ahead = sum(sibling_votes(lineup, meeting.group, meeting.seq).values())
            alike = [group.kind for group in lineup.groups].count(lineup.groups[meeting.group].kind)
            votes.update((present | absent if alike < 2 else absent if ahead else present) & part)
            excused |= present if ahead else set()
        else:
            minority = present if len(present) < len(absent) else absent
            votes.update(dict.fromkeys(minority & part, abs(len(present) - len(absent))))
    return votes if excused >= votes.keys() else Counter({rank: n for rank, n in votes.items() if rank not in excused})


def judge_cycle(programs: Programs, graph: WaitGraph, part: Sequence[int], victims: tuple[int, ...]) -> Trouble:
    """Name the rank that closed the circle: the one that left its path, else the minority, else all."""
    lineup = programs.lineup
    meetings = open_meetings(graph, part)
    # Who only queued behind others came everywhere: the circle is closed by those that somebody misses.
    inside = {rank for m in meetings for rank in (*m.joined, *m.absent)} & set(part)
    part = sorted(inside)
    blamed = _blamed(lineup, meetings, inside)
    programs.add_all(part)
    departures = {rank: programs.deviations(rank, LOOK_BACK) for rank in part}
    if not any(departures.values()):
        departures = {rank: programs.deviations_in_time(rank, LOOK_BACK) for rank in part}
    flagged = {rank: found[0] for rank, found in departures.items() if found}
    missing = {rank for meeting in meetings for rank in meeting.absent}
    if all(meeting.p2p for meeting in meetings) and missing:
        # A rank that posted every message that others wait for left none out, however unusual its last one is.
        flagged = {rank: departure for rank, departure in flagged.items() if rank in missing}
    if not all(meeting.p2p for meeting in meetings) and (sides := _of_one_call(programs, graph, part)):
        return _in_other_order(graph, meetings, part, sides, victims)
    if 0 < len(flagged) < len(part):
        culprits = _earliest(lineup, {r: d for r, d in flagged.items() if blamed[r]} or flagged)
        return _shape(programs, graph, meetings, part, culprits, flagged, victims)
    if all(meeting.p2p for meeting in meetings):
        sits = {rank: m for rank in part if (m := _sits(graph, rank, inside)) is not None and rank in m.joined}
        past = [rank for rank, m in sits.items() if left_out(lineup, rank, m.joined[rank])]
        past = past or [rank for rank, m in sits.items() if fewer_messages(lineup, rank, m.joined[rank])]
        past = past or _past_the_message(meetings, sits) or sorted(missing & inside)
        if len(past) == 1:
            missed = next((m for m in meetings if past[0] in m.absent), meetings[0])
            rest = tuple(sorted({*victims, *part} - set(past)))
            return Trouble("send-missing", tuple(past), missed, rest, acted=sits[past[0]].joined[past[0]])
        return Trouble(
            "p2p-cycle",
            tuple(part),
            meetings[0],
            _others(victims, part),
            cycle=links(graph, part),
            other=meetings[1] if len(meetings) > 1 else None,
            tie=True,
        )
    most = [rank for rank, count in blamed.items() if count == max(blamed.values())] if blamed else []
    if most and len(most) < len(part):
        return _shape(programs, graph, meetings, part, sorted(most), {}, victims)
    return Trouble(
        "crossed",
        tuple(part),
        meetings[0],
        _others(victims, part),
        other=meetings[1] if len(meetings) > 1 else None,
        cycle=links(graph, part),
        tie=True,
        unsure=True,
    )


def _of_one_call(programs: Programs, graph: WaitGraph, part: Sequence[int]) -> list[list[int]]:
    """The ranks by what they wait in, the most first, where one line calls both for the first time: each does all of
    it, in an order of its own. Nothing where they came there by different lines, or not in two ways."""
    lineup, inside = programs.lineup, set(part)
    rows = {rank: m.joined[rank] for rank in part if (m := _sits(graph, rank, inside)) and rank in m.joined}
    sides: dict[object, list[int]] = {}
    for rank, row in rows.items():
        sides.setdefault(programs.label(row), []).append(rank)
    first, *others = sorted(sides.values(), key=len, reverse=True) or [[]]
    if len(rows) < len(part) or len(others) != 1:
        return []
    one, other = (lineup.call_of(rows[side[0]]) for side in (first, others[0]))
    finished = {lineup.calls[number].stack for number in np.unique(lineup.call[lineup.done]).tolist()}
    known = one.stack in finished or other.stack in finished  # then the past tells who left its path
    return [first, *others] if not known and common_lines(one, other) else []


def _in_other_order(
    graph: WaitGraph, meetings: Sequence[Meeting], part: Sequence[int], sides: list[list[int]], victims: tuple[int, ...]
) -> Trouble:
    """The smaller side took the groups in the other order; of two that are equal both are told."""
    tie = len(sides[0]) == len(sides[1])
    ranks = sorted(part) if tie else sorted(sides[1])
    missed = next((m for m in meetings if ranks[0] in m.absent), meetings[0])
    sits = _sits(graph, ranks[0], set(part))
    rest = _unique(rank for rank in (*victims, *part) if rank not in ranks)
    return Trouble(
        "crossed", tuple(ranks), missed, rest, other=sits, cycle=links(graph, part), tie=tie, unsure=tie,
    )  # fmt: skip


def _past_the_message(meetings: Sequence[Meeting], sits: dict[int, Meeting]) -> list[int]:
    """Who waits in a collective to which the others have come behind the message of it that they wait for."""
    return [
        rank
        for message in meetings
        for rank in message.absent
        if rank in sits and not sits[rank].p2p
        if all(sits[rank].joined.get(other, -1) > row for other, row in message.joined.items())
    ]


def left_out(lineup: Lineup, rank: int, row: int) -> bool:
    """Whether a message that came before this one every time until now was not issued this time.

    Who posted it later only changed the order, and the circle is a deadlock.
    """
    rows = np.flatnonzero(lineup.rank == rank)
    calls = lineup.call[rows]
    at = int(np.searchsorted(rows, row))
    same = np.flatnonzero(calls == calls[at])
    earlier = [int(i) for i in same if 0 < i < at]
    usual = {int(calls[i - 1]) for i in earlier}
    if at == 0 or at + 1 >= len(rows) or len(earlier) < 2 or len(usual) != 1:
        return False
    (before,) = usual
    if int(calls[at - 1]) == before or not lineup.p2p[rows[earlier[-1] - 1]]:
        return False
    following = next((int(i) for i in same if i > at), None)
    since = int((calls[at + 1 : following] == before).sum())
    return since == (0 if following is None else 1)  # the next round has its own


def fewer_messages(lineup: Lineup, rank: int, row: int) -> bool:
    """Whether the messages in one direction before this one were fewer than every time until now: a pipeline whose last
    batch has fewer parts."""
    rows = [at for at in lineup.rows(rank) if at <= row and lineup.p2p[at]]
    ways = [direction(lineup.call_of(at).op.removeprefix("nccl:")) for at in rows]
    runs = [(way, len(list(same))) for way, same in groupby(ways)]
    if len(runs) < 2:
        return False
    way, count = runs[-2]
    usual = Counter(length for other, length in runs[1:-2] if other == way)
    (often, times), *_ = usual.most_common(1) or [(0, 0)]
    return times >= _OFTEN and times > _NEARLY_ALL * usual.total() and count < often


def _earliest(lineup: Lineup, flagged: dict[int, Deviation]) -> list[int]:
    """One fault makes one rank leave first; others that left much later only followed."""
    return sorted(flagged) if len(flagged) == 1 else sorted(flagged, key=lambda r: lineup.created[flagged[r].row])[:1]


def _others(victims: tuple[int, ...], part: Sequence[int]) -> tuple[int, ...]:
    return tuple(rank for rank in victims if rank not in part)


def _sits(graph: WaitGraph, rank: int, inside: set[int]) -> Meeting | None:
    """The meeting in which a rank waits for others of the circle."""
    return next((meeting for meeting, awaited in graph.awaited_by(rank) if awaited & inside), None)


def links(graph: WaitGraph, part: Sequence[int]) -> tuple[tuple[int, Meeting, Meeting | None], ...]:
    """For each rank: the meeting it sits in, and one that others of the circle hold open for it."""
    inside = set(part)
    found: list[tuple[int, Meeting, Meeting | None]] = []
    for rank in part:
        sits = _sits(graph, rank, inside)
        if sits is None:
            continue
        held_open = (m for other in part if other != rank for m, awaited in graph.awaited_by(other) if rank in awaited)
        open_for = next(held_open, None)
        found.append((rank, sits, open_for))
    return tuple(found)


def _shape(
    programs: Programs,
    graph: WaitGraph,
    meetings: Sequence[Meeting],
    part: Sequence[int],
    culprits: Sequence[int],
    flagged: dict[int, Deviation],
    victims: tuple[int, ...],
) -> Trouble:
    """What the culprit did: went past an operation, added one, or used two groups in the other order."""
    lineup = programs.lineup
    rank = culprits[0]
    missed = next((m for m in meetings if rank in m.absent), meetings[0])
    sits = _sits(graph, rank, set(part))
    departure = flagged.get(rank)
    acted = departure.row if departure else (sits.joined[rank] if sits else None)
    if acted is not None and sits is not None and _came_there(lineup, acted, missed):
        acted = sits.joined[rank]  # an order that was unusual before, and held nobody up, closes no circle
    due = next(iter(missed.joined.values()))
    if departure is not None and departure.expected is not None and rank in missed.joined:
        due = departure.expected  # it came there too: what it left out is elsewhere
    rest = tuple(r for r in (*victims, *part) if r not in culprits)
    if missed.p2p:
        return Trouble("send-missing", tuple(culprits), missed, _unique(rest), acted, due, sits, flagged=True)
    due_known = _known_before(programs, due)
    acted_known = acted is not None and _known_before(programs, acted)
    passed = acted is not None and _passed_by(lineup, acted, due)
    if (
        acted is not None
        and sits is not None
        and (
            _at_one_place(lineup, acted, due)
            or (
                not acted_known
                and (
                    (not due_known and not passed)
                    or (_usual_elsewhere(programs, acted) and _side_by_side(lineup, acted, due))
                    or _by_anotherpath(lineup, sits, rank)
                )
            )
        )
    ):
        voters = _voters(lineup, programs, missed, sits, rank)
        even = _even_ring(lineup, links(graph, part), part)
        tie = even or voters <= 1
        both = {rank, *(r for r in sits.absent if r in missed.joined)}
        everyone = tuple(sorted(part)) if even else tuple(sorted(both)) if tie else tuple(culprits)
        return Trouble(
            "crossed",
            everyone,
            missed,
            _unique(r for r in rest if r not in everyone),
            acted,
            due,
            sits,
            cycle=links(graph, sorted(part) if even else sorted({rank, *sits.absent} & set(part))),
            tie=tie,
            flagged=departure is not None,
        )
    came_too = sits is not None and not sits.absent and not sits.disagrees
    shape: Shape = "added" if not acted_known and (due_known or passed) and not came_too else "skipped"
    return Trouble(
        shape,
        tuple(culprits),
        missed,
        _unique(rest),
        acted,
        due,
        sits,
        repeated=due_known,
        flagged=departure is not None,
    )


def _even_ring(lineup: Lineup, ring: Sequence[tuple[int, Meeting, Meeting | None]], part: Sequence[int]) -> bool:
    """Whether each of more than two ranks sits in a group of its own with the next, half of them in one operation of a
    line and half of them in the other: no two share both groups, and no majority has one order."""
    if len(part) < 3 or len(ring) != len(part) or len({sits.group for _, sits, _ in ring}) != len(part):
        return False
    calls = [lineup.call_of(sits.joined[rank]) for rank, sits, _ in ring if rank in sits.joined]
    sides = Counter((call.op, call.input_sizes) for call in calls)
    return len(calls) == len(part) and len(sides) == 2 and len(set(sides.values())) == 1


def _came_there(lineup: Lineup, row: int, missed: Meeting) -> bool:
    """Whether this was an earlier round of the group that waits now, and it finished."""
    return bool(lineup.done[row]) and int(lineup.group[row]) == missed.group and int(lineup.seq[row]) < missed.seq


def _unique(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ranks)))


def _known_before(programs: Programs, row: int) -> bool:
    """Whether the operation was finished before, here or elsewhere."""
    return programs.finished.get(programs.label(row), 0) > bool(programs.lineup.done[row])


def _usual_elsewhere(programs: Programs, row: int) -> bool:
    """The same operation of the same kind of group is usual, only from another line."""
    lineup = programs.lineup
    kind, sig = lineup.group_of(row).kind, lineup.call_signature[lineup.call[row]]
    same_kind = np.array([group.kind == kind for group in lineup.groups], np.bool_)
    alike = (lineup.call_signature[lineup.call] == sig) & lineup.done & (lineup.group >= 0)
    return bool(same_kind[lineup.group[alike]].any())


def _at_one_place(lineup: Lineup, acted: int, due: int) -> bool:
    """One line issues both, for two groups: a loop over groups, whose order is not the same on every rank."""
    one, other = lineup.call_of(acted), lineup.call_of(due)
    if not one.stack or int(lineup.group[acted]) == int(lineup.group[due]):
        return False
    return one.stack == other.stack or bool(lines_of_both(lineup, acted, due))


def _side_by_side(lineup: Lineup, acted: int, due: int) -> bool:
    """Both calls stand in one function, as two branches of a condition do; or their lines are not known."""
    mine, theirs = (place_of(lineup.call_of(row)) for row in (acted, due))
    return mine is None or theirs is None or (mine.file, mine.function) == (theirs.file, theirs.function)


def _passed_by(lineup: Lineup, acted: int, due: int) -> bool:
    """The rank is in a function that the others have passed without calling it: its call is one too many."""
    there = fork(lineup.call_of(acted).stack, lineup.call_of(due).stack)
    return there is not None and there[0].line < there[1].line and not _side_by_side(lineup, acted, due)


def _by_anotherpath(lineup: Lineup, sits: Meeting, rank: int) -> bool:
    """Others came to the same operation through other lines: a branch of its own, with an order of its own.

    A rank that only left out an operation before this one comes here as all others do.
    """
    paths = {member: path(lineup.call_of(row)) for member, row in sits.joined.items()}
    mine = paths.pop(rank, ())
    return bool(mine) and any(path and path != mine for path in paths.values())


def _voters(lineup: Lineup, programs: Programs, missed: Meeting, sits: Meeting, rank: int) -> int:
    """How many ranks of both groups (or of sibling groups) take the two in the other order than `rank`."""
    members = set(lineup.groups[sits.group].members) & set(lineup.groups[missed.group].members) - {rank}
    found = {r for r in members if r in missed.joined and r not in sits.joined}
    first, second = programs.label(next(iter(missed.joined.values()))), programs.label(sits.joined[rank])
    for other, program in programs.labels.items():
        if other in members or other == rank:
            continue
        labels = program.tolist()
        if second in labels and first in labels and labels.index(first) < labels.index(second):
            found.add(other)
    before = rows_of_kind(lineup, missed)
    return len(found | {r for r, row in sits.joined.items() if r != rank and before.get(r, row) < row})
