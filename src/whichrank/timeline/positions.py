"""Where every rank and every group stands: what the reports list beside the verdict."""

from __future__ import annotations

from whichrank.model.verdict import Diverged, GroupInfo, Position, RankInfo, RankState, Wait
from whichrank.timeline.case import Case
from whichrank.timeline.lineup import Lineup
from whichrank.timeline.meetings import Meeting
from whichrank.timeline.waits import WaitGraph, build_graph

# Waits are listed for at most so many ranks: a reader needs the pattern, not 4,096 lines of it.
MANY = 4096


def _position(lineup: Lineup, row: int) -> Position:
    call = lineup.call_of(row)
    group = lineup.group_of(row).id if lineup.group[row] >= 0 else ""
    return Position(group, int(lineup.seq[row]), call.op)


def ranks(case: Case) -> tuple[RankInfo, ...]:
    """Every rank of the job: its coordinates, what it does, and the operation it has reached."""
    lineup = case.lineup
    if lineup is None:
        return ()
    graph = build_graph(case.meetings) if case.troubles else WaitGraph()
    stopped = {rank for t in case.troubles if t.shape in ("stopped", "not-started") for rank in t.ranks}
    infos = []
    for rank in range(lineup.world):
        state: RankState = "unknown"
        at = None
        rows = lineup.rows(rank)
        if len(rows):
            head = graph.heads.get(rank)
            at = _position(lineup, head[0].joined[rank] if head else rows[-1])
            state = "stuck" if rank in stopped else "waiting" if head else "running"
        infos.append(RankInfo(rank, coords=case.coords.get(rank, {}), state=state, at=at))
    return tuple(infos)


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
    found = []
    for rank in sorted(graph.heads)[:MANY]:
        for meeting in graph.heads[rank]:
            others = {other for party in meeting.parties if rank not in party for other in party}
            missing = tuple(sorted({*meeting.absent, *meeting.unseen, *others}))
            position = _position(lineup, meeting.joined[rank])
            found.append(Wait(rank, position.group, position.seq, position.op, missing))
    return tuple(found)
