"""Collectives of all ranks matched, and the ranks' clocks aligned by their ends.

The members of a synchronising collective leave it together: the difference between the ends that two ranks note is the
difference between their clocks. Ranks of one host share a clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from whichrank.records.profiles.steps import RankSteps
from whichrank.records.profiles.trace import Collective, Ints, Longs
from whichrank.timeline.steps.intervals import median

TOGETHER = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send_recv", ""}
"""Operations whose members end together; a broadcast's root may be gone long before the others."""
_IN_PAIRS = ("send", "recv")
"""Their numbers count on each side for itself."""
ROUNDS = 40
APART_NS = 500_000
"""Without names of groups: members whose ends lie further apart than this (and a tenth of the operation) never met."""


class Matched(Struct, eq=False, dict=True):
    """One row per rank and collective; rows of one operation stand together."""

    ranks: list[RankSteps]
    op: Ints
    """Number of the operation."""
    rank: Ints
    """Index into `ranks`."""
    call: Ints
    """Index into that rank's calls."""
    start: Longs
    end: Longs
    """On the aligned clock."""
    offset: Longs
    """By rank: what its clock was ahead."""
    error: Longs
    """By rank: how far its ends still scatter."""
    what: list[Collective]
    step: Longs
    """By operation: the step's number; -1 outside of all."""

    @cached_property
    def first(self) -> Longs:
        """Where the rows of each operation begin, and one more for the end."""
        return np.searchsorted(self.op, np.arange(len(self.what) + 1)).astype(np.int64)

    def time(self, index: int, moment: int) -> int:
        """A moment of a rank's clock on the aligned one."""
        return int(moment + self.ranks[index].base_ns - self.offset[index])


def match(ranks: Sequence[RankSteps]) -> Matched:
    """Match what several profiles of one job have in common."""
    numbers: dict[tuple[object, ...], int] = {}
    what: list[Collective] = []
    rows: list[tuple[Ints, Ints, Ints]] = []
    steps: list[int] = []
    for index, one in enumerate(ranks):
        mine: list[int] = []
        for key, collective in _keys(one):
            number = numbers.setdefault(key, len(what))
            if number == len(what):
                what.append(collective)
                steps.append(int(key[0]) if isinstance(key[0], int) else -1)
            mine.append(number)
        op = np.array(mine, np.int32)
        rows.append((op, np.full(len(op), index, np.int32), np.arange(len(op), dtype=np.int32)))
    op, rank, call = (
        (np.concatenate(parts) if parts else np.empty(0, np.int32) for parts in zip(*rows, strict=True))
        if rows
        else (np.empty(0, np.int32),) * 3
    )
    order = np.lexsort((rank, op))
    op, rank, call = op[order], rank[order], call[order]
    start, end = _times(ranks, rank, call)
    offset, error = _aligned(ranks, op, rank, end, what)
    if not all(one.ends_known for one in ranks):
        offset, error = _trusted(ranks, op, rank, start, what), np.zeros(len(ranks), np.int64)
    found = Matched(
        list(ranks),
        op,
        rank,
        call,
        start - offset[rank],
        end - offset[rank],
        offset,
        error,
        what,
        np.array(steps, np.int64),
    )
    return _parted(found)


def _keys(one: RankSteps) -> list[tuple[tuple[object, ...], Collective]]:
    """What identifies each call on every rank that takes part: the step, the group, the operation, and how often."""
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    found: list[tuple[tuple[object, ...], Collective]] = []
    marked, ids = one.marked, one.ids.tolist()
    told = [
        (each, each.ranks or (each.group, each.desc, each.size), each.seq if each.op not in _IN_PAIRS else None)
        for each in one.collectives
    ]
    for what, step in zip(one.calls.what.tolist(), one.calls.step.tolist(), strict=True):
        collective, group, seq = told[what]
        number = (ids[step] if step >= 0 else -1) if marked else 0
        key = (number, group, collective.op)
        if seq is not None:
            found.append(((*key, "seq", seq), collective))
            continue
        seen[key] += 1
        found.append(((*key, seen[key]), collective))
    return found


def _times(ranks: Sequence[RankSteps], rank: Ints, call: Ints) -> tuple[Longs, Longs]:
    start, end = np.zeros(len(rank), np.int64), np.zeros(len(rank), np.int64)
    for index, one in enumerate(ranks):
        mine = rank == index
        start[mine] = one.calls.start[call[mine]] + one.base_ns
        end[mine] = one.calls.end[call[mine]] + one.base_ns
    return start, end


def _aligned(
    ranks: Sequence[RankSteps], op: Ints, rank: Ints, end: Longs, what: Sequence[Collective]
) -> tuple[Longs, Longs]:
    """What each rank's clock is ahead of the others', by the medians of its differences."""
    count = len(ranks)
    offset = np.zeros(count, np.float64)
    error = np.zeros(count, np.int64)
    together = np.array([collective.op in TOGETHER for collective in what], np.bool_)
    sizes = np.bincount(op, minlength=len(what)) if len(op) else np.zeros(0, np.int64)
    use = (sizes[op] > 1) & together[op] if len(op) else np.zeros(0, np.bool_)
    if not use.any():
        return offset.astype(np.int64), error
    base = int(end[use].min())
    op, rank, late = op[use], rank[use], (end[use] - base).astype(np.float64)
    mine = [np.flatnonzero(rank == index) for index in range(count)]
    hosts = _hosts(ranks)
    for _ in range(ROUNDS):
        now = late - offset[rank]
        middle = np.bincount(op, now, minlength=len(what)) / np.maximum(np.bincount(op, minlength=len(what)), 1)
        apart = now - middle[op]
        change = np.array([median(apart[rows]) if len(rows) else 0.0 for rows in mine])
        for members in hosts:
            seen = [m for m in members if len(mine[m])]
            if seen:
                change[members] = median(change[seen])
        offset += change
        if np.abs(change).max() < 100:
            break
    offset -= median(offset)
    left = late - offset[rank]
    middle = np.bincount(op, left, minlength=len(what)) / np.maximum(np.bincount(op, minlength=len(what)), 1)
    for index, rows in enumerate(mine):
        error[index] = int(median(np.abs(left[rows] - middle[op[rows]]))) if len(rows) else 0
    return np.rint(offset).astype(np.int64), error


def _trusted(ranks: Sequence[RankSteps], op: Ints, rank: Ints, start: Longs, what: Sequence[Collective]) -> Longs:
    """Clocks where no end is known, by arrivals alone: nobody is late for everything.

    A rank that comes after the others to (almost) each of several collectives per step, even to those that follow one
    another at once, has a clock that is ahead. With one collective per step that can't be told from being late, and the
    clocks are taken as they are.
    """
    offset = np.zeros(len(ranks), np.int64)
    steps = max((len(one.ids) for one in ranks), default=1)
    if not len(op) or len(what) < 2 * steps:
        return offset
    sizes = np.bincount(op, minlength=len(what))
    middle = np.zeros(len(what))
    for number in np.flatnonzero(sizes > 1).tolist():
        middle[number] = median(start[op == number])
    late = start - middle[op]
    for index in range(len(ranks)):
        mine = np.sort(late[(rank == index) & (sizes[op] > 1)])
        if len(mine):
            low, high = float(mine[len(mine) // 10]), float(mine[-1 - len(mine) // 10])
            offset[index] = round(low) if low > 0 else round(high) if high < 0 else 0
    return offset


def _hosts(ranks: Sequence[RankSteps]) -> list[list[int]]:
    """Indices of ranks that are known to share a host, and so a clock."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(ranks):
        if one.host_name:
            found[one.host_name].append(index)
    return list(found.values())


def _parted(found: Matched) -> Matched:
    """Where nothing names the groups, ranks whose ends always lie apart are in different ones."""
    shared = np.flatnonzero(np.diff(found.first) > 1).tolist()
    clusters = {op: _clusters(found, op) for op in shared if _unnamed(found.what[op])}
    whole = {op: sides for op, sides in clusters.items() if sum(map(len, sides)) > 1}
    seen = Counter((found.what[op].op, frozenset(sides)) for op, sides in whole.items())
    totals = Counter(found.what[op].op for op in whole)
    op, what, step = found.op.copy(), list(found.what), found.step.tolist()
    for number, sides in whole.items():
        kind = found.what[number].op
        if len(sides) < 2 or seen[kind, frozenset(sides)] * 2 <= totals[kind]:
            continue
        low, high = found.first[number], found.first[number + 1]
        for side in sides[1:]:
            op[low:high][np.isin(found.rank[low:high], sorted(side))] = len(what)
            what.append(found.what[number])
            step.append(int(found.step[number]))
    if len(what) == len(found.what):
        return found
    order = np.lexsort((found.rank, op))
    return Matched(
        found.ranks, op[order], found.rank[order], found.call[order], found.start[order], found.end[order],
        found.offset, found.error, what, np.array(step, np.int64),
    )  # fmt: skip


def _unnamed(what: Collective) -> bool:
    return what.size is None and what.ranks is None and not what.group


def _clusters(found: Matched, op: int) -> list[frozenset[int]]:
    """The members of an operation by their ends: those that lie together."""
    low, high = found.first[op], found.first[op + 1]
    ends, who = found.end[low:high], found.rank[low:high]
    if len(ends) < 2 or int(ends.max()) - int(ends.min()) <= APART_NS:
        return [frozenset(who.tolist())]
    limit = max(APART_NS, int(median(ends - found.start[low:high])) // 10)
    order = np.argsort(ends, kind="stable")
    cuts = np.flatnonzero(np.diff(ends[order]) > limit) + 1
    return [frozenset(part.tolist()) for part in np.split(who[order], cuts)]
