"""Ranks that left no dump: what the others prove of them.

A missing dump is evidence, not proof: innocents lose dumps too. A rank without one is suspected only
where nobody else is missing, and cleared where others have finished later operations together with it.
"""

from __future__ import annotations

from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.program import Deviation, Programs
from whichrank.timeline.collectives.signature import proves_all_joined
from whichrank.timeline.collectives.troubles.disagreement import LOOK_BACK
from whichrank.timeline.collectives.troubles.trouble import Trouble
from whichrank.timeline.collectives.waits import WaitGraph

RANKS_OF_A_HOST = 16


def _went_past(lineup: Lineup, meeting: Meeting) -> set[int]:
    """Unseen ranks that took part in something that a member issued after this meeting and finished."""
    cleared: set[int] = set()
    unseen, known = set(meeting.unseen), set[int]()
    for rank, row in meeting.joined.items():
        stop = lineup.rows(rank).stop
        for later in range(row + 1, stop):
            group = int(lineup.group[later])
            if group < 0 or group in known or not lineup.done[later] or lineup.p2p[later]:
                continue
            if proves_all_joined(lineup.signature_of(later).op):
                known.add(group)
                cleared |= unseen.intersection(lineup.groups[group].members)
        if len(cleared) == len(unseen):
            break
    return cleared


def _uncovered(lineup: Lineup) -> list[set[int]]:
    """Ranks without a dump that may share a group of which nobody left one, for each kind of group.

    Such a group is in no dump at all; it shows as ranks that no group of an otherwise complete kind covers.
    """
    covered: dict[tuple[str, int], set[int]] = {}
    for group in lineup.groups:
        if 1 < len(group.members) < lineup.world:
            covered.setdefault(group.kind, set()).update(group.members)
    bare = [set(range(lineup.world)) - members for members in covered.values()]
    return [ranks for ranks in bare if ranks and ranks.isdisjoint(lineup.first)]


def _without_witness(lineup: Lineup, rank: int) -> set[int]:
    """Other ranks without a dump that may share such a group with `rank`."""
    return set[int]().union(*(ranks for ranks in _uncovered(lineup) if rank in ranks)) - {rank}


def _may_wait_elsewhere(lineup: Lineup, rank: int, meeting: Meeting) -> bool:
    """Whether a rank without a dump may be held up before this meeting.

    Read off a member that came: between the last operation that it is known to have done together with
    `rank` and this meeting, did it do anything with others? Then `rank` may be waiting in its own such operation.
    """
    witness, row = next(iter(meeting.joined.items()))
    for earlier in range(row - 1, lineup.rows(witness).start - 1, -1):
        group = int(lineup.group[earlier])
        if group >= 0 and not lineup.p2p[earlier] and rank in lineup.groups[group].members:
            return False
        if group >= 0:
            return True
    return False


def judge_lost(programs: Programs, graph: WaitGraph, waiting: tuple[int, ...]) -> Trouble:
    """Only ranks without a dump are missing: name one if the meetings leave just one."""
    lineup = programs.lineup
    deserter = _deserter(programs, graph, waiting)
    if deserter is not None:
        return deserter
    first = min(graph.suspected, key=lambda m: min(lineup.created[row] for row in m.joined.values()))
    due = next(iter(first.joined.values()))
    suspects = [(m, set(m.unseen) - _went_past(lineup, m)) for m in graph.suspected]
    open_sets = [left for _, left in suspects if left]
    if not open_sets:
        return _somebody_else(programs, [m for m, _ in suspects], waiting)
    in_all = set.intersection(*open_sets)
    alone = {rank for m, left in suspects if len(left) == 1 for rank in left}
    sure = {rank for m, left in suspects if len(left) == 1 for rank in left if not _may_wait_elsewhere(lineup, rank, m)}
    chosen = next((group for group in (in_all, sure, alone) if len(group) == 1), in_all or alone)
    doubtful = (
        {other for rank in chosen - sure for other in _without_witness(lineup, rank)} if len(chosen) == 1 else set()
    )
    if len(chosen) == 1 and not doubtful:
        where = next(m for m, left in suspects if chosen <= left)
        return Trouble("lost", tuple(chosen), where, waiting, due=next(iter(where.joined.values())))
    candidates = tuple(sorted((chosen or set.union(*open_sets)) | doubtful))
    if _one_lost_group(lineup, candidates):
        return Trouble("lost", candidates, first, waiting, due=due, unsure=True, tie=True)
    return Trouble("undecided", (), first, waiting, due=due, candidates=candidates, unsure=True)


def judge_unknown(programs: Programs, graph: WaitGraph) -> Trouble:
    """Somebody waits, and whom for is not in the evidence: members of a group that nobody names."""
    deserter = _deserter(programs, graph, graph.waiting)
    if deserter is not None:
        return deserter
    meeting = min(graph.meetings, key=lambda m: min(programs.lineup.created[row] for row in m.joined.values()))
    return Trouble(
        "undecided", (), meeting, tuple(sorted(graph.heads)), due=next(iter(meeting.joined.values())), unsure=True
    )


def _deserter(programs: Programs, graph: WaitGraph, waiting: tuple[int, ...]) -> Trouble | None:
    """The one rank with a dump that went past an operation in which others wait, or a rank without one would."""
    lineup = programs.lineup
    unseen = {rank for meeting in graph.suspected for rank in meeting.unseen}
    shared = [g for g in lineup.groups if len(g.members) < lineup.world and unseen & set(g.members)]
    found: list[tuple[int, Deviation]] = []
    missing = {rank for meeting in graph.meetings for rank in meeting.absent}
    # A dump that is older than what the others prove says nothing about where its rank went since.
    known = set(lineup.first) - unseen
    ranks = sorted({rank for group in shared for rank in group.members if rank in known} | missing)
    programs.add_all(ranks)
    for rank in ranks:
        kinds = {group.kind for group in shared if rank in group.members}
        missed = {programs.label(next(iter(m.joined.values()))) for m in graph.meetings if rank in m.absent}
        for deviation in programs.deviations(rank, LOOK_BACK)[:1]:
            expected = deviation.expected
            due_with_lost = lineup.group_of(expected).kind in kinds
            if int(lineup.rank[expected]) != rank and (due_with_lost or programs.label(expected) in missed):
                found.append((rank, deviation))
    if len(found) != 1:
        return None
    rank, deviation = found[0]
    rest = tuple(r for r in (*waiting, *unseen) if r != rank)
    missed_at = [m for m in graph.meetings if rank in m.absent]
    where = next(iter([*missed_at, *(m for m in graph.suspected if rank in m.joined), *graph.meetings]))
    return Trouble(
        "skipped", (rank,), where, rest, acted=deviation.row, due=deviation.expected, flagged=True, unsure=True
    )


def _one_lost_group(lineup: Lineup, ranks: tuple[int, ...]) -> bool:
    """Whether these are all ranks without a dump, and together a group (a host, a tp pair) that vanished as one.

    Where more are missing than a host has, it is evidence that was not collected: it accuses nobody."""
    missing = set(range(lineup.world)) - set(lineup.first)
    if not 1 < len(ranks) <= RANKS_OF_A_HOST or set(ranks) != missing:
        return False
    return all(_without_witness(lineup, rank) == missing - {rank} for rank in ranks)


def _somebody_else(programs: Programs, meetings: list[Meeting], waiting: tuple[int, ...]) -> Trouble:
    """The ranks without a dump went on, so they came: a rank that did come has left its path."""
    for meeting in meetings:
        programs.add_all(meeting.joined)
        for rank, row in meeting.joined.items():
            found = [
                d for d in programs.deviations(rank, LOOK_BACK * 4) if programs.lineup.group[d.row] == meeting.group
            ]
            if found and found[0].row <= row:
                rest = tuple(r for r in waiting if r != rank)
                return Trouble(
                    "skipped",
                    (rank,),
                    meeting,
                    rest,
                    acted=found[0].row,
                    due=found[0].expected,
                    flagged=True,
                )
    meeting = meetings[0]
    due = next(iter(meeting.joined.values()))
    if len(meeting.unseen) == 1:
        return Trouble("lost", meeting.unseen, meeting, waiting, due=due)
    return Trouble("undecided", (), meeting, waiting, due=due, candidates=meeting.unseen, unsure=True)
