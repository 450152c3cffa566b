"""Where every rank and every group stands: what the reports list beside the verdict."""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.moments import rfc3339_ns
from whichrank.model.verdict import Diverged, GroupInfo, Position, RankInfo, RankState, Standing, Wait
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.waits import WaitGraph, build_graph

# Waits are listed for at most so many ranks: a reader needs the pattern, not 4,096 lines of it.
MOST_NAMED = 1 << 19
"""Ranks that are waited for, in all waits: where half of a large job is missing, everybody waits for thousands."""
MANY = 4096


def _position(lineup: Lineup, row: int) -> Position:
    call = lineup.call_of(row)
    group = lineup.group_of(row).id if lineup.group[row] >= 0 else ""
    return Position(group, int(lineup.seq[row]), call.op)


def ranks(case: Case) -> tuple[RankInfo, ...]:
    """Every rank of the job: its coordinates, what it does, and the operation it has reached."""
    lineup = case.lineup
    if lineup is None:
        return tuple(_info(case, rank, "unknown", None) for rank in sorted(case.people.by_rank))
    graph = build_graph(case.meetings) if case.troubles else WaitGraph()
    stopped = {rank for t in case.troubles if t.shape in ("stopped", "not-started") for rank in t.ranks}
    infos = []
    for rank in range(lineup.world):
        info = _info(case, rank, "unknown", None)
        rows = lineup.rows(rank)
        if len(rows):
            head = graph.heads.get(rank)
            row = head[0].joined[rank] if head else rows[-1]
            state: RankState = "stuck" if rank in stopped else "waiting" if head else "running"
            # An operation that is over is not where a rank is, whatever it does since.
            over = bool(lineup.done[row]) and not head
            where, seen = _position(lineup, row), rfc3339_ns(lineup.mtime.get(rank, 0) or 0)
            info = replace(info, state=state, at=None if over else where, after=where if over else None, seen=seen)
        infos.append(info)
    return tuple(infos)


def _info(case: Case, rank: int, state: RankState, at: Position | None) -> RankInfo:
    known = case.people.by_rank.get(rank)
    host, pid, gpu = (known.host, known.pid, known.gpu) if known else (None, None, None)
    return RankInfo(rank, host, pid, gpu, case.coords.get(rank, {}), state, at)


def standings(case: Case) -> tuple[Standing, ...]:
    """Where the ranks are by their stacks: identical ones together, the most frequent first."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, activity in case.activities.items():
        place = str(activity.place) if activity.place is not None else str(activity)
        together.setdefault((place, activity.doing), []).append(rank)
    rows = [Standing(place, doing, tuple(sorted(ranks))) for (place, doing), ranks in together.items()]
    return tuple(sorted(rows, key=lambda row: (-len(row.ranks), row.ranks)))


def groups(case: Case) -> tuple[GroupInfo, ...]:
    """Every group, with the first operation that not all members joined."""
    lineup = case.lineup
    if lineup is None:
        return ()
    first: dict[int, Meeting] = {}
    for meeting in case.meetings.pending if case.troubles else ():
        if not meeting.p2p:
            first.setdefault(meeting.group, meeting)
    found = []
    for index, group in enumerate(lineup.groups):
        open_one = first.get(index)
        diverged = None
        if open_one is not None:
            row = next(iter(open_one.joined.values()))
            missing = tuple(sorted((*open_one.absent, *open_one.unseen)))
            diverged = Diverged(open_one.seq, lineup.call_of(row).op, tuple(sorted(open_one.joined)), missing)
        found.append(
            GroupInfo(group.id, group.name, group.desc, group.members, case.meetings.last_done.get(index), diverged)
        )
    return tuple(found)


def waits(case: Case) -> tuple[Wait, ...]:
    """Who waits for whom."""
    lineup = case.lineup
    if lineup is None or not case.troubles:
        return ()
    graph = build_graph(case.meetings)
    found: list[Wait] = []
    named = 0
    parties = {id(m): [frozenset(p) for p in m.parties] for m in graph.meetings if len(m.parties) > 1}
    for rank in sorted(graph.heads)[:MANY]:
        for meeting in graph.heads[rank] if named < MOST_NAMED else ():
            others = {other for party in parties.get(id(meeting), ()) if rank not in party for other in party}
            missing = tuple(sorted({*meeting.absent, *meeting.unseen, *others}))
            position = _position(lineup, meeting.joined[rank])
            found.append(Wait(rank, position.group, position.seq, position.op, missing))
            named += len(missing)
    return tuple(found)
