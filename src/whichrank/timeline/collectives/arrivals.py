"""Who is steadily late: the late rank waits least.

For every operation that all members finished, each rank's wait is how much longer it sat there than the member
that sat there shortest. Summed over all groups, the ranks that are held up have waited long and the one that
holds them up hardly at all; a rank that is late in one group because it waited in another has its wait there.

The recorder's own durations need no common clock, nor does "noticed the end minus issued". Gloo notes no ends:
there the arrivals themselves are compared, on clocks that the collectives have aligned.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.timeline.clocks.collectives import Clock
from whichrank.timeline.collectives.attendance import attendance
from whichrank.timeline.collectives.channels import channels
from whichrank.timeline.collectives.lineup import I64, Bools, Lineup

# Below this many shared operations lateness is chance.
ENOUGH = 24
# A straggler costs the others at least this share of the time, and waits least in most parts of the run.
SHARE, PARTS, STEADY = 0.10, 8, 0.75
# In such a part it waits less by at least this share of the usual difference.
CLEAR = 0.2
# Shorter waits than this per operation are not worth a report.
FLOOR_NS = 1_000_000

# Rows that are looked at; more would only cost memory.
MANY = 400_000

Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


class Late(Struct, frozen=True):
    """Ranks that hold up the others."""

    ranks: tuple[int, ...]
    share: float
    """Part of the time that the others lose by waiting for them."""
    waits_ns: int
    others_wait_ns: int
    """Per operation, on average."""
    operations: int
    row: int
    measure: str
    """What was measured: "duration", "end" or "arrival"."""


class _Shared(Struct, dict=True):
    """Operations that everybody finished: the rows, meeting by meeting, and how many rows each meeting has."""

    lineup: Lineup
    rows: Rows
    sizes: npt.NDArray[np.intp]
    every: int
    """Only every so-manieth operation was taken."""
    clocks: dict[int, Clock]

    @cached_property
    def start(self) -> npt.NDArray[np.intp]:
        """The first row of each meeting."""
        return np.cumsum(self.sizes) - self.sizes

    def above_least(self, values: Floats) -> Floats:
        """By how much each row's value is above the least one in its meeting."""
        with np.errstate(invalid="ignore"):  # of meetings that have no such values
            above: Floats = values - np.repeat(np.minimum.reduceat(values, self.start), self.sizes)
        return above

    @cached_property
    def timed(self) -> Bools:
        """The meetings in which each rank's recorder took the time."""
        if not np.isfinite(self.lineup.duration).any():
            return np.zeros(len(self.sizes), np.bool_)
        timed: Bools = np.logical_and.reduceat(np.isfinite(self.lineup.duration[self.rows]), self.start)
        return timed

    @cached_property
    def completed(self) -> I64:
        return self.lineup.completed[self.rows]

    @cached_property
    def noted(self) -> Bools:
        """The meetings of which each rank noted the end."""
        noted: Bools = np.logical_and.reduceat(self.completed > 0, self.start)
        return noted

    @cached_property
    def by_duration(self) -> Floats:
        """How long each row waited; of the timed meetings."""
        return self.above_least(self.lineup.duration[self.rows].astype(np.float64) * 1e6)

    @cached_property
    def by_end(self) -> Floats:
        """The same of the noted meetings."""
        sat = self.completed - self.lineup.created[self.rows]
        return self.above_least(sat.astype(np.float64))

    @cached_property
    def by_arrival(self) -> Floats | None:
        """The same of all meetings, on aligned clocks; None where these are unsure."""
        unsure = [clock.uncertain_ns for clock in self.clocks.values()]
        if any(half is None for half in unsure):
            return None
        ahead = np.zeros(self.lineup.world + 1, np.int64)
        for rank, clock in self.clocks.items():
            ahead[rank] = clock.ahead_ns
        came = (self.lineup.created[self.rows] - ahead[self.lineup.rank[self.rows]]).astype(np.float64)
        waits = np.repeat(np.maximum.reduceat(came, self.start), self.sizes) - came
        return np.maximum(waits - max(half or 0 for half in unsure), 0)


def find_late(lineup: Lineup, clocks: dict[int, Clock]) -> Late | None:
    """The straggler, if there is a clear one: over the whole run, or since it became one."""
    shared = _shared(lineup, clocks)
    if not len(shared.sizes):
        return None
    return _find(shared, np.ones(len(shared.sizes), np.bool_)) or _find(shared, _newer(shared))


def _find(shared: _Shared, meetings: Bools) -> Late | None:
    """The straggler of some of the meetings, by the best measure that at least half of them have."""
    if not meetings.any():
        return None
    if shared.timed[meetings].mean() >= 0.5:
        return _judge(shared, meetings & shared.timed, shared.by_duration, "duration")
    if shared.noted[meetings].mean() >= 0.5:
        return _judge(shared, meetings & shared.noted, shared.by_end, "end")
    return _judge(shared, meetings, shared.by_arrival, "arrival") if shared.by_arrival is not None else None


def _newer(shared: _Shared) -> Bools:
    """The meetings of the second half of the run, counted in each rank's own operations: clocks may differ."""
    lineup = shared.lineup
    middle = np.zeros(lineup.world + 1, np.int64)
    for rank, (first, stop) in lineup.first.items():
        middle[rank] = (first + stop) // 2
    rows = shared.rows[shared.start]
    newer: Bools = rows >= middle[lineup.rank[rows]]
    return newer


def _shared(lineup: Lineup, clocks: dict[int, Clock]) -> _Shared:
    """Collectives that every dumped member of a group has finished, and messages that both ends have.

    Of very many only every so-manieth is taken: that changes no mean.
    """
    every = len(lineup) // MANY + 1
    rows: list[Rows] = []
    sizes: list[npt.NDArray[np.intp]] = []
    for number, group in enumerate(lineup.groups):
        wanted = sum(member in lineup.first for member in group.members)
        table = attendance(lineup, number, every) if wanted > 1 else None
        if table is not None:
            here = table.sizes
            whole = (here == wanted) & np.logical_and.reduceat(table.done, table.start)
            rows.append(table.row[np.repeat(whole, here)])
            sizes.append(here[whole])
    for channel in channels(lineup):
        if not lineup.wrapped & {channel.source, channel.target}:
            count = min(len(channel.sends), len(channel.receives))
            pairs = np.stack([channel.sends[:count:every], channel.receives[:count:every]], axis=1)
            pairs = pairs[lineup.done[pairs].all(axis=1)]
            rows.append(pairs.reshape(-1))
            sizes.append(np.full(len(pairs), 2, np.intp))
    lengths = np.concatenate([*sizes, np.empty(0, np.intp)])
    return _Shared(lineup, np.concatenate([*rows, np.empty(0, np.intp)]), lengths, every, clocks)


def _judge(shared: _Shared, meetings: Bools, waits: Floats, measure: str) -> Late | None:
    lineup, rows = shared.lineup, shared.rows
    if not meetings.all():
        kept = np.repeat(meetings, shared.sizes)
        rows, waits = rows[kept], waits[kept]
    rank = lineup.rank[rows]
    met = np.bincount(rank)
    ranks = np.flatnonzero(met)
    count = met[ranks]
    if len(ranks) < 2 or count.min() < ENOUGH:
        return None
    total = np.bincount(rank, waits)[ranks].astype(np.float64)
    late = _apart(total)
    if not late:
        return None
    others = [i for i in range(len(ranks)) if i not in late]
    worst = min(late, key=lambda i: total[i])
    mean = total / count
    gain = float(_median(mean[others]) - mean[worst])
    if gain < FLOOR_NS:
        return None
    inverse = (np.cumsum(met > 0) - 1)[rank]
    created = lineup.created[rows]
    begin = np.full(len(ranks), np.iinfo(np.int64).max)
    end = np.zeros(len(ranks), np.int64)
    np.minimum.at(begin, inverse, created)
    np.maximum.at(end, inverse, created)
    span = _median(end - begin)
    if span <= 0:
        return None
    share = float(_median(total[others]) - total[worst]) * shared.every / span
    if share < SHARE or _steadiness(inverse, rows, waits, late, len(ranks)) < STEADY:
        return None
    return Late(
        tuple(int(ranks[i]) for i in late),
        min(share, 1.0),
        int(mean[worst]),
        int(_median(mean[others])),
        int(count[worst]) * shared.every,
        int(rows[inverse == worst].max()),
        measure,
    )


def _median(values: npt.NDArray[Any]) -> float:
    """The middle of some numbers. (numpy's own imports its masked arrays, which costs more than this.)"""
    ordered = np.sort(values)
    return (float(ordered[len(ordered) // 2]) + float(ordered[(len(ordered) - 1) // 2])) / 2


def _apart(total: Floats) -> list[int]:
    """Ranks that waited far less than all others: at most a quarter of them, at least one may be meant."""
    order = np.argsort(total, kind="stable")
    typical = _median(total)
    for count in range(1, max(1, len(total) // 4) + 1):
        inside, outside = float(total[order[count - 1]]), float(total[order[count]])
        if outside - inside >= 0.5 * (typical - float(total[order[0]])) and inside <= 0.5 * outside:
            return sorted(int(i) for i in order[:count])
    return []


def _steadiness(
    inverse: npt.NDArray[np.intp],
    rows: Rows,
    waits: Floats,
    late: list[int],
    size: int,
) -> float:
    """In which share of the parts of the run the late ranks waited clearly least: one long pause is no straggler.

    The parts are of each rank's own operations: clocks may be further apart than the run is long.
    """
    count = np.bincount(inverse, minlength=size)
    order = np.lexsort((rows, inverse))
    number = np.empty(len(rows), np.intp)
    number[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    part = number * PARTS // count[inverse]
    seen = np.bincount(inverse * PARTS + part, minlength=size * PARTS).reshape(size, PARTS)
    mean = np.bincount(inverse * PARTS + part, waits, minlength=size * PARTS).reshape(size, PARTS) / np.maximum(seen, 1)
    gap = _gap(np.bincount(inverse, waits, minlength=size) / count, late)
    least = [
        mean[late, n].max() <= np.delete(mean[:, n], late).min() and _gap(mean[:, n], late) >= CLEAR * gap
        for n in range(PARTS)
    ]
    return float(np.mean(least))


def _gap(mean: Floats, late: list[int]) -> float:
    """How much longer the others usually wait."""
    return float(_median(np.delete(mean, late)) - mean[late].max())
