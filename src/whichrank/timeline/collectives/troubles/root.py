"""From troubled meetings to troubles: where the waiting ends, and who is behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from whichrank.records.dump import SCHEDULED, STARTED
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting, Meetings
from whichrank.timeline.collectives.program import TAIL, Programs, pool_programs
from whichrank.timeline.collectives.troubles.trouble import ARGUMENTS, Trouble
from whichrank.timeline.collectives.waits import WaitGraph, build_graph, in_oldest, reached_by, sinks

# An unfinished operation is nothing unusual up to three times as long as nearly all earlier ones took, within these
# bounds: dumps of a running job are not written at one instant, and nobody looks at a job that hangs for half a second.
USUAL_TIMES, SHORTEST_NS, LONGEST_NS = 3, 500_000_000, 60_000_000_000
# Of a shorter history nothing is usual.
FEW, UNKNOWN_NS = 16, 2_000_000_000
# Within this many operations a disagreement and a standstill of one group are one event.
NEAR = 3
# So often two groups must have been used in one order before it is the usual one.
ROUNDS = 3


def find_troubles(lineup: Lineup, meetings: Meetings) -> list[Trouble]:
    """All independent faults, the one that explains the standstill first."""
    pending = meetings.pending
    if not pending and not meetings.disagreements:
        return []
    programs = pool_programs(lineup)
    if in_progress(lineup, pending):
        pending = []
    linked, silent = _disagreements(programs, meetings, pending) if meetings.disagreements else ([], [])
    troubles: list[Trouble] = []
    if linked:
        troubles += [
            _with_victims(trouble, set(build_graph(meetings).waiting)) for trouble in _merged(programs, linked)[:1]
        ]
    elif pending:
        troubles += _standstill(programs, meetings)
    return troubles + _merged(programs, silent)


def _disagreements(
    programs: Programs, meetings: Meetings, pending: list[Meeting]
) -> tuple[list[Trouble], list[Trouble]]:
    """Those that the standstill comes from, and the others."""
    from whichrank.timeline.collectives.troubles.disagreement import judge_disagreement

    by_time = sorted(meetings.disagreements, key=lambda m: _onset(programs.lineup, m))
    linked = [judge_disagreement(programs, m, hangs=True) for m in by_time if _linked(m, pending)]
    silent = [judge_disagreement(programs, m, hangs=False) for m in by_time if not _linked(m, pending)]
    if silent and all(trouble.shape in ARGUMENTS and not trouble.tie for trouble in silent):
        later = [judge_disagreement(programs, m, hangs=False) for m in meetings.later_disagreements]
        silent += [trouble for trouble in later if trouble.shape in {t.shape for t in silent} and not trouble.tie]
    return linked, silent


def _merged(programs: Programs, troubles: list[Trouble]) -> list[Trouble]:
    """One trouble for the same departure from the same line in several groups: several ranks took that branch."""
    merged: dict[tuple[object, ...], Trouble] = {}
    for number, trouble in enumerate(troubles):
        due = programs.label(trouble.due) if trouble.due is not None else -1
        key = (number,) if trouble.tie else (trouble.shape, due)
        first = merged.get(key)
        if first is None:
            merged[key] = trouble
        else:
            ranks = tuple(sorted({*first.ranks, *trouble.ranks}))
            victims = tuple(sorted({*first.victims, *trouble.victims} - set(ranks)))
            merged[key] = replace(first, ranks=ranks, victims=victims)
    return list(merged.values())


COARSE_NS = 2 * 1_000_000_000


def in_progress(lineup: Lineup, pending: Iterable[Meeting]) -> bool:
    """Dumps of a job that simply runs: everything unfinished had only just been issued when they were written."""
    rows = [row for m in pending for rank, row in m.joined.items() if rank not in m.finished]
    if not rows:  # between two operations: the last ones were issued just before
        return bool(lineup.newest) and all(_just_issued(lineup, rank, when) for rank, when in lineup.newest.items())
    if lineup.aborted[rows].any():
        return False
    return all(_just_issued(lineup, int(lineup.rank[row]), int(lineup.created[row])) for row in rows)


def _just_issued(lineup: Lineup, rank: int, created_ns: int) -> bool:
    """Whether a rank's operation was young when its dump was written; False where nobody knows when that was."""
    written, newest = lineup.mtime.get(rank, 0), lineup.newest[rank]
    # Archives keep whole seconds, and a job issues on while its recorder is read.
    known = 0 < newest <= written + COARSE_NS and written < newest + 3600 * 1_000_000_000
    return known and written - created_ns <= _patience(lineup, rank)


def _patience(lineup: Lineup, rank: int) -> int:
    """How long an operation of this rank may be unfinished before that is unusual."""
    rows = np.arange(*lineup.first[rank])[-TAIL:]
    ended = rows[lineup.done[rows] & (lineup.completed[rows] > 0)]
    took = lineup.completed[ended] - lineup.created[ended]
    if len(ended) < FEW:  # Gloo notes no ends: the next thing that was issued is as good
        took = np.diff(lineup.created[rows])
    if len(took) < FEW:
        return UNKNOWN_NS
    return int(np.clip(USUAL_TIMES * np.sort(took)[len(took) * 95 // 100], SHORTEST_NS, LONGEST_NS))


def _onset(lineup: Lineup, meeting: Meeting) -> int:
    return int(min((lineup.created[row] for row in meeting.joined.values()), default=0))


def _linked(meeting: Meeting, pending: Iterable[Meeting]) -> bool:
    """Whether a disagreement is what the standstill comes from."""
    if meeting.pending and any(m is meeting or (m.group, m.seq) == (meeting.group, meeting.seq) for m in pending):
        return True
    return any(m.group == meeting.group and not m.p2p and 0 <= m.seq - meeting.seq <= NEAR for m in pending)


def _with_victims(trouble: Trouble, waiting: set[int]) -> Trouble:
    return replace(trouble, victims=tuple(sorted((waiting | set(trouble.victims)) - set(trouble.ranks))))


def _standstill(programs: Programs, meetings: Meetings) -> list[Trouble]:
    lineup = programs.lineup
    graph = build_graph(meetings)
    waiting = graph.waiting
    ends = sinks(graph)
    missed = {rank for heads in graph.heads.values() for meeting in heads for rank in meeting.absent}
    # A dump that is older than the others does not prove that its rank did not come.
    alone = [part[0] for part in ends if len(part) == 1 and part[0] not in graph.heads and part[0] in lineup.first]
    idle = [rank for rank in alone if rank in missed]
    if idle:
        return [_idle(programs, graph, idle, waiting)]
    from whichrank.timeline.collectives.troubles.cycle import judge_cycle, open_meetings
    from whichrank.timeline.collectives.troubles.lost import judge_lost, judge_unknown

    circles = [part for part in ends if len(part) > 1 and open_meetings(graph, part)]
    if circles:
        part = max(circles, key=lambda p: reached_by(graph, p))
        inner = [at for at in sinks(in_oldest(graph, meetings)) if 1 < len(at) < len(part) and set(at) <= set(part)]
        if not any(_queue(graph, at) for at in inner):
            return [judge_cycle(programs, graph, part, waiting)]
        ends = inner  # the others of the circle only queued behind them
    for part in ends:
        queued = _queue(graph, part)
        if queued:
            return [_queued_messages(lineup, part, queued, waiting)]
    if graph.complete:
        trouble = _stalled(lineup, graph, ends)
        if trouble.ranks or not graph.suspected:
            return [trouble]
    if graph.suspected:
        first = min(graph.suspected, key=lambda m: _onset(lineup, m))
        return [_not_started(lineup, first) or judge_lost(programs, graph, waiting)]
    return [judge_unknown(programs, graph)]


def _queue(graph: WaitGraph, part: tuple[int, ...]) -> list[Meeting]:
    """The messages among these ranks that are all posted, where they hold up each other."""
    queued = [m for m in graph.complete if m.p2p and set(m.joined) <= set(part)]
    return queued if len(queued) > 1 else []


def _queued_messages(lineup: Lineup, part: tuple[int, ...], queued: list[Meeting], waiting: tuple[int, ...]) -> Trouble:
    """Sends and receives that are all posted, each behind another of the circle on its rank's GPU."""
    from whichrank.timeline.collectives.troubles.cycle import left_out

    first = {rank: min(m.joined[rank] for m in queued if rank in m.joined) for rank in part}
    past = [rank for rank, row in first.items() if left_out(lineup, rank, row)]
    if len(past) == 1:  # its later messages stand for the one that it left out
        missed = next(m for m in queued if any(m.joined.get(r) == first[r] for r in part if r != past[0]))
        rest = tuple(sorted({*waiting, *part} - set(past)))
        return Trouble("send-missing", tuple(past), missed, rest, acted=first[past[0]])
    links = []
    for rank in part:
        mine = sorted((m for m in queued if rank in m.joined), key=lambda m: m.joined[rank])
        if len(mine) > 1:
            links.append((rank, mine[0], mine[-1]))
    rest = tuple(rank for rank in waiting if rank not in part)
    return Trouble("p2p-cycle", part, queued[0], rest, other=queued[1], cycle=tuple(links), tie=True)


def _idle(programs: Programs, graph: WaitGraph, idle: list[int], waiting: tuple[int, ...]) -> Trouble:
    """Ranks that wait for nothing while others wait for them."""
    missed = next(m for rank in waiting for m in graph.heads.get(rank, ()) if set(idle) & set(m.absent))
    away = set(idle) & set(missed.absent)
    caller = tuple(sorted(missed.joined))
    novel = not _seen_before(programs, next(iter(missed.joined.values())))
    if len(missed.joined) < len(away) and len(waiting) <= len(missed.joined) and (novel or len(missed.joined) == 1):
        row = missed.joined[caller[0]]
        return Trouble("alone", caller, missed, (), acted=row, repeated=not novel, unsure=not novel)
    due = next(iter(missed.joined.values()))
    programs.add_all(away)
    for rank in sorted(away):
        departures = programs.deviations(rank, 300)
        if departures and departures[0].expected is not None:
            first = departures[0]
            return Trouble(
                "skipped",
                tuple(sorted(idle)),
                missed,
                waiting,
                acted=first.row,
                due=first.expected,
                flagged=True,
            )
    return Trouble("stopped", tuple(sorted(idle)), missed, waiting, due=due, repeated=not novel)


def _seen_before(programs: Programs, row: int) -> bool:
    return programs.finished.get(programs.label(row), 0) > 0


def _stalled(lineup: Lineup, graph: WaitGraph, ends: Sequence[tuple[int, ...]]) -> Trouble:
    """Everybody came and agrees."""
    crossed = _crossed_on_gpu(lineup, graph.complete) or _ring_on_gpu(graph, ends)
    if crossed is not None:
        return crossed
    meeting = min(graph.stalled or graph.complete, key=lambda m: _onset(lineup, m))
    everyone = tuple(sorted(meeting.joined))
    row = next(iter(meeting.joined.values()))
    if len(everyone) == 1 and lineup.call_of(row).backend != "gloo":
        return Trouble("not-started", everyone, meeting, (), acted=row)
    return _not_started(lineup, meeting) or Trouble("stalled", (), meeting, everyone, acted=row)


def _not_started(lineup: Lineup, meeting: Meeting) -> Trouble | None:
    """The GPUs of some ranks never began what the others have begun, although nothing older holds them up."""
    begun = [rank for rank, row in meeting.joined.items() if lineup.state[row] == STARTED]
    idle = sorted(
        rank
        for rank in meeting.pending
        if lineup.state[meeting.joined[rank]] == SCHEDULED and _is_oldest(lineup, meeting.joined[rank])
    )
    if not lineup.timed or not begun or not idle or len(idle) * 2 > len(meeting.joined):
        return None
    rest = tuple(rank for rank in sorted(meeting.joined) if rank not in idle)
    return Trouble("not-started", tuple(idle), meeting, rest, acted=meeting.joined[idle[0]])


def _is_oldest(lineup: Lineup, row: int) -> bool:
    """Whether nothing older of the same rank is unfinished: it is not queued behind another operation."""
    start, _ = lineup.first[int(lineup.rank[row])]
    return bool(np.all(lineup.done[start:row]))


def _crossed_on_gpu(lineup: Lineup, stalled: list[Meeting]) -> Trouble | None:
    """Two operations of two groups that all ranks have queued, some in the other order: neither can run."""
    for index, one in enumerate(stalled):
        for two in stalled[index + 1 :]:
            both = sorted(set(one.pending) & set(two.pending))
            if (one.group == two.group and one.p2p == two.p2p) or len(both) < 2:
                continue
            forward = [r for r in both if one.joined[r] < two.joined[r]]
            backward = [r for r in both if r not in forward]
            if not forward or not backward:
                continue
            if one.p2p != two.p2p:
                return _message_crossed(one if one.p2p else two, two if one.p2p else one, both)
            ahead = len(forward) - len(backward) or _order_elsewhere(lineup, one, two, both)
            ahead = ahead or _order_before(lineup, one, two, both)
            odd, tie = forward if ahead < 0 else backward, ahead == 0
            culprits = tuple(both if tie else odd)
            cycle = tuple((r, one if r in forward else two, two if r in forward else one) for r in both)
            rest = tuple(sorted((set(one.joined) | set(two.joined)) - set(culprits)))
            mine = (one, two) if odd is forward else (two, one)
            return Trouble(
                "crossed",
                culprits,
                mine[1],
                rest,
                acted=mine[0].joined[odd[0]],
                due=mine[1].joined[odd[0]],
                other=mine[0],
                cycle=cycle,
                tie=tie,
            )
    return None


def _ring_on_gpu(graph: WaitGraph, ends: Sequence[tuple[int, ...]]) -> Trouble | None:
    """Operations of several groups, each queued by one of its ranks behind another of the ring: none can run."""
    from whichrank.timeline.collectives.troubles.cycle import links

    for part in ends:
        ring = links(graph, part)
        if len(part) > 2 and len(ring) == len(part) and len({sits.group for _, sits, _ in ring}) > 1:
            (_, first, _), (_, second, _) = ring[:2]
            rest = tuple(rank for rank in graph.waiting if rank not in part)
            return Trouble("crossed", part, first, rest, other=second, cycle=ring, tie=True, unsure=True)
    return None


def _message_crossed(message: Meeting, collective: Meeting, both: list[int]) -> Trouble:
    """One end of a message posted it before a collective, the other one behind it."""
    first = {rank: message.joined[rank] < collective.joined[rank] for rank in both}
    cycle = tuple((r, message if first[r] else collective, collective if first[r] else message) for r in both)
    rest = tuple(sorted(set(collective.joined) - set(both)))
    return Trouble("p2p-cycle", tuple(both), message, rest, other=collective, cycle=cycle, tie=True)


def _order_elsewhere(lineup: Lineup, one: Meeting, two: Meeting, besides: list[int]) -> int:
    """By how many of the other ranks `one` comes before `two`, or what stands for them in groups of the same kind."""
    from whichrank.timeline.collectives.troubles.disagreement import rows_of_kind

    first, second = (rows_of_kind(lineup, meeting) for meeting in (one, two))
    both = (first.keys() & second.keys()) - set(besides)
    return sum(1 if first[rank] < second[rank] else -1 for rank in both)


def _order_before(lineup: Lineup, one: Meeting, two: Meeting, ranks: list[int]) -> int:
    """By how many of these ranks `one` came before `two` in all earlier rounds, less those where it came behind."""
    found = 0
    for rank in ranks:
        start, _ = lineup.first[rank]
        first, second = (
            [at for at in range(start, meeting.joined[rank]) if lineup.group[at] == meeting.group and lineup.done[at]]
            for meeting in (one, two)
        )
        if len(first) == len(second) >= ROUNDS:
            orders = {a < b for a, b in zip(first, second, strict=True)}
            found += 0 if len(orders) > 1 else 1 if orders.pop() else -1
    return found
