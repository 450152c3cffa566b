"""Who arrives late, by how much, what it costs, and what the late rank did instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from whichrank.records.profiles.steps import (
    ARRIVE,
    CHECKPOINT,
    COLLECTOR,
    HOST,
    LOADER,
    OTHER,
    SYNCHRONISING,
    WAIT,
    WORKING,
    RankSteps,
)
from whichrank.records.profiles.trace import Floats, Longs
from whichrank.timeline.steps.changes import with_own
from whichrank.timeline.steps.intervals import distinct, median, middle_row
from whichrank.timeline.steps.matching import TOGETHER, Matched
from whichrank.timeline.steps.replay import Play, own_clock, run, span

SHARE = 0.01
"""Lateness below this share of the step is noise."""
LEAST_NS = 100_000
LEAST_BY_CLOCKS_NS = 20_000_000
"""The same where the hosts' own clocks must be trusted: more than they are usually apart."""
CLEAR = 2.0
OFTEN = 0.5
"""A straggler is late in at least this share of the steps, or once for half a step."""
REASONS = {
    WORKING: "compute", LOADER: "data-loader", CHECKPOINT: "checkpoint", COLLECTOR: "garbage-collection",
    SYNCHRONISING: "synchronisation", HOST: "host", OTHER: "host",
}  # fmt: skip


class Late(Struct, frozen=True):
    """One late rank; times in nanoseconds per step."""

    index: int
    late_ns: float
    cost_ns: float | None
    steps: int
    of_steps: int
    reason: str
    doing: str


def lateness(matched: Matched) -> tuple[Floats, list[int]]:
    """By rank and step: how much later than the others' median it came to its collectives; and the steps.

    Once the others have waited for it they are level again: what is lost after each such meeting adds up. Between two
    meetings only the worst collective counts: a rank that is late by 100 ms is late for every bucket that follows.
    """
    steps = sorted(set(matched.step.tolist()))
    place = {step: index for index, step in enumerate(steps)}
    found = np.zeros((len(matched.ranks), max(1, len(steps))))
    least = np.maximum(3 * matched.error, LEAST_NS // 2)
    first, levelled = matched.first, _levelled(matched)
    worst: dict[tuple[int, int], Floats] = {}
    for op, what in enumerate(matched.what):
        low, high = int(first[op]), int(first[op + 1])
        if high - low < 2 or what.op not in TOGETHER:
            continue
        arrivals, who = matched.start[low:high], matched.rank[low:high]
        # The median of the others: the rank itself must not move its own measure.
        order = np.sort(arrivals)
        late = arrivals - np.array([_median_without(order, value) for value in arrivals.tolist()])
        epoch = place[int(matched.step[op])], int(np.searchsorted(levelled, order[0]))
        table = worst.setdefault(epoch, np.zeros(len(matched.ranks)))
        table[who] = np.maximum(table[who], np.where(late > least[who], late, 0))
    for (column, _), table in worst.items():
        found[:, column] += table
    return found, steps


def _levelled(matched: Matched) -> Longs:
    """When the ranks were level: the ends of the operations that at least half of their members waited for."""
    waited = np.zeros(len(matched.what))
    numbers = {
        (r, c): o for o, r, c in zip(matched.op.tolist(), matched.rank.tolist(), matched.call.tolist(), strict=True)
    }
    for index, one in enumerate(matched.ranks):
        for call in distinct(one.links.call[one.links.kind == WAIT]):
            waited[numbers[index, call]] += 1
    members = np.diff(matched.first)
    if not any(one.compute.any() for one in matched.ranks):  # nothing shows who waits: every operation levels them
        waited = members.astype(np.float64)
    ops = np.flatnonzero((waited * 2 >= members) & (members > 1))
    return np.sort(np.array([matched.end[matched.first[op]] for op in ops.tolist()], np.int64))


def _median_without(order: Longs, value: int) -> float:
    rest = np.delete(order, int(np.searchsorted(order, value)))
    return float(median(rest)) if len(order) <= 64 else float(order[(len(order) - 1) // 2])


def find_late(matched: Matched, play: Play | None, recorded: float | None) -> list[Late]:
    """The late ranks, the costliest first."""
    ranks = matched.ranks
    if len(ranks) < 2:
        return []
    by_clocks = not all(one.ends_known for one in ranks)
    if by_clocks and not all(one.marked for one in ranks):
        return []  # arrivals that never repeat say nothing of a rank
    late, steps = lateness(matched)
    typical = float(median([median(one.end - one.start) for one in ranks if len(one.ids)]))
    inside = [column for column, step in enumerate(steps) if step >= 0]
    late, count = (late[:, inside], len(inside)) if inside else (late, 1)
    each = np.minimum(late.sum(axis=1), _excess(ranks)) / count
    found = []
    least = max(SHARE * typical, LEAST_BY_CLOCKS_NS if by_clocks else LEAST_NS)
    for index in _standing_out(each, least):
        often = int((late[index] > least / 2).sum())
        if often < OFTEN * count and late[index].max() < typical / 2:
            continue
        cost = _cost(play, index, recorded, count) if any(one.compute.any() for one in ranks) else None
        reason, doing = _doing(ranks, index, count)
        found.append(Late(index, float(each[index]), cost, often, count, reason, doing))
    return sorted(found, key=lambda one: (-(one.cost_ns or 0), -one.late_ns))


def _standing_out(each: Floats, least: float) -> list[int]:
    """The ranks whose lateness stands clear of all others': at least twice the next one's; at most half of all."""
    order = np.argsort(-each, kind="stable")
    best, most = 0, CLEAR
    for count in range(1, len(order) // 2 + 1):
        if each[order[count - 1]] < least:
            break
        ratio = each[order[count - 1]] / max(each[order[count]], 1.0)
        if ratio >= most:
            best, most = count, ratio
    return [int(index) for index in order[:best]]


def _excess(ranks: Sequence[RankSteps]) -> Floats:
    """Own time of each rank beyond the others' median, summed over the steps where there is any.

    A rank that is late only because others held it up has none. Own time includes the wait for a device that is slower
    at the same work; where waits don't show (all of it overlaps), the work's own length tells.
    """
    work = np.array([float(one.compute.sum()) for one in ranks])
    if not work.any():  # collectives alone, as NCCL's Inspector logs them: nothing tells own time from waiting
        return np.full(len(ranks), np.inf)
    slower = np.array([max(0.0, work[i] - float(median(np.delete(work, i)))) for i in range(len(ranks))])
    found: Floats = np.maximum(_own_excess(ranks), slower)
    return found


def _own_excess(ranks: Sequence[RankSteps]) -> Floats:
    common = sorted(set.intersection(*({int(i) for i in one.ids} for one in ranks)))
    if not common or not all(one.marked for one in ranks):
        own = np.array([float(one.links.own.sum() + one.tail.sum()) for one in ranks])
        return np.array([max(0.0, own[i] - float(median(np.delete(own, i)))) for i in range(len(ranks))])
    table = np.array([_own_by_step(one, common) for one in ranks])
    # A delay before the first kernel of a step falls into the step before: only the sum is compared.
    others = (middle_row(np.delete(table, index, axis=0)) for index in range(len(ranks)))
    return np.array([float((mine - other).clip(min=0).sum()) for mine, other in zip(table, others, strict=True)])


def _own_by_step(one: RankSteps, common: Sequence[int]) -> Floats:
    step = np.clip(np.searchsorted(one.start, one.links.at, side="left") - 1, 0, len(one.ids) - 1)
    own = np.bincount(step, one.links.own.astype(np.float64), minlength=len(one.ids))
    own[-1] += one.tail.sum()
    where = {int(number): index for index, number in enumerate(one.ids)}
    return np.asarray(own[[where[number] for number in common]], np.float64)


def as_others(play: Play, index: int) -> tuple[list[float], float]:
    """The rank's own times if it were nowhere later than the others' median: new times and beginning."""
    arrivals: dict[int, list[float]] = {}
    for other, chain in enumerate(play.chains):
        if other != index:
            clock = chain.begin + own_clock(chain)
            for kind, op, moment in zip(chain.kind, chain.op, clock.tolist(), strict=False):
                if kind == ARRIVE:
                    arrivals.setdefault(op, []).append(moment)
    others = [chain for other, chain in enumerate(play.chains) if other != index]
    mine = play.chains[index]
    begin = min(mine.begin, float(median([chain.begin for chain in others])))
    clock = (mine.begin + own_clock(mine)).tolist()
    end = float(median([chain.begin + own_clock(chain)[-1] for chain in others]))
    now, ahead, own = begin, mine.begin - begin, []
    for place, moment in enumerate(clock):
        if place == len(mine.op):
            ahead = max(0.0, moment - end)
        elif mine.kind[place] == ARRIVE and mine.op[place] in arrivals:
            ahead = max(0.0, moment - float(median(arrivals[mine.op[place]])))
        then = max(now, moment - ahead)
        own.append(then - now)
        now = then
    return own, begin


def _cost(play: Play | None, index: int, recorded: float | None, count: int) -> float | None:
    """What the job would gain per step without this rank's lateness."""
    if play is None or recorded is None:
        return None
    own, begin = as_others(play, index)
    without = span(run(with_own(play, index, own, begin)))
    return None if without is None else max(0.0, recorded - without) / count


def _doing(ranks: Sequence[RankSteps], index: int, count: int) -> tuple[str, str]:
    """What the rank spent more time on than the others."""
    if ranks[index].collectives_only:
        how = "" if ranks[index].ends_known else ", by the hosts' own clocks"
        return "unknown", f"it comes after the others{how}; what it did before is not recorded"
    spent = np.array([one.links.spent.sum(axis=0) + one.tail for one in ranks], np.float64)
    more = spent[index] - middle_row(np.delete(spent, index, axis=0))
    reason = int(np.argmax(more))
    each, typical = spent[index][reason] / count, middle_row(np.delete(spent, index, axis=0))[reason] / count
    told = f"{each / 1e6:.1f} ms per step, {typical / 1e6:.1f} ms on the others"
    name = _name(ranks, index)
    if reason == WORKING:
        kind = "kernel" if ranks[index].on_device else "operator"
        return "compute", f"computing ({kind} {name}): {told}" if name else f"computing: {told}"
    words = {
        LOADER: "waiting for data (data loader)", CHECKPOINT: "writing a checkpoint",
        COLLECTOR: "in Python's garbage collector", SYNCHRONISING: "in calls that wait for the device",
        HOST: "busy on the host (operators and launches)",
        OTHER: "in host code that the profile does not show (Python, a lock, a sleep, another process)",
    }[reason]  # fmt: skip
    named = f" {name}" if name and reason in (LOADER, CHECKPOINT, COLLECTOR, SYNCHRONISING) else ""
    return REASONS[reason], f"{words}{named}: {told}"


def _name(ranks: Sequence[RankSteps], index: int) -> str:
    """The one name on which it spent the most more than the others."""
    totals = [_totals(one) for one in ranks]
    best, most = "", 0.0
    for name, mine in totals[index].items():
        others = [total.get(name, 0.0) for i, total in enumerate(totals) if i != index]
        more = mine - float(median(others))
        if more > most:
            best, most = name, more
    return best if len(best) <= 120 else best[:117] + "…"


def _totals(one: RankSteps) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, time in zip(one.links.top.reshape(-1).tolist(), one.links.top_ns.reshape(-1).tolist(), strict=True):
        if name >= 0:
            found[one.names[name]] = found.get(one.names[name], 0.0) + time
    return found
