"""Who is steadily late: the late rank waits least.

For every operation that all members finished, each rank's wait is how much longer it sat there than the member
that sat there shortest. Summed over all groups, the ranks that are held up have waited long and the one that
holds them up hardly at all; a rank that is late in one group because it waited in another has its wait there.

The recorder's own durations need no common clock, nor does "noticed the end minus issued". Gloo notes no ends:
there the arrivals themselves are compared, on clocks that the collectives have aligned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.timeline.clocks.collectives import Clock
from whichrank.timeline.collectives.attendance import attendance
from whichrank.timeline.collectives.channels import channels
from whichrank.timeline.collectives.lineup import I32, Lineup

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

Rows = I32


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


class _Shared(Struct):
    """Operations that everybody finished: the rows, meeting by meeting, and where each meeting begins."""

    rows: Rows
    start: npt.NDArray[np.intp]
    every: int
    """Only every so-manieth operation was taken."""

    @property
    def meeting(self) -> npt.NDArray[np.intp]:
        """For each row the number of its meeting."""
        return np.repeat(np.arange(len(self.start)), np.diff(np.r_[self.start, len(self.rows)]))

    def only(self, kept: npt.NDArray[np.bool_]) -> _Shared:
        """Some of the meetings."""
        if kept.all():
            return self
        sizes = np.diff(np.r_[self.start, len(self.rows)])
        return _Shared(self.rows[np.repeat(kept, sizes)], np.cumsum(sizes[kept]) - sizes[kept], self.every)

    def least(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """For each row the least value in its meeting."""
        lowest: npt.NDArray[np.float64] = np.minimum.reduceat(values, self.start)[self.meeting]
        return lowest


def find_late(lineup: Lineup, clocks: dict[int, Clock]) -> Late | None:
    """The straggler, if there is a clear one: over the whole run, or since it became one."""
    shared = _shared(lineup)
    return _find(lineup, shared, clocks) or _find(lineup, shared.only(_newer(lineup, shared)), clocks)


def _find(lineup: Lineup, shared: _Shared, clocks: dict[int, Clock]) -> Late | None:
    if not len(shared.start):
        return None
    shared, waits, measure = _waits(lineup, shared, clocks)
    return _judge(lineup, shared, waits, measure) if waits is not None else None


def _newer(lineup: Lineup, shared: _Shared) -> npt.NDArray[np.bool_]:
    """The meetings of the second half of the run, counted in each rank's own operations: clocks may differ."""
    middle = np.zeros(lineup.world + 1, np.int64)
    for rank, (first, stop) in lineup.first.items():
        middle[rank] = (first + stop) // 2
    rows = shared.rows[shared.start]
    newer: npt.NDArray[np.bool_] = rows >= middle[lineup.rank[rows]]
    return newer


def _shared(lineup: Lineup) -> _Shared:
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
            rows.append(pairs.reshape(-1).astype(np.int32))
            sizes.append(np.full(len(pairs), 2, np.intp))
    lengths = np.concatenate([*sizes, np.empty(0, np.intp)])
    return _Shared(np.concatenate([*rows, np.empty(0, np.int32)]), np.cumsum(lengths) - lengths, every)


def _waits(
    lineup: Lineup, shared: _Shared, clocks: dict[int, Clock]
) -> tuple[_Shared, npt.NDArray[np.float64] | None, str]:
    """How long each row waited, by the best measure that at least half of the meetings have."""
    timed = np.logical_and.reduceat(np.isfinite(lineup.duration[shared.rows]), shared.start)
    if timed.mean() >= 0.5:
        shared = shared.only(timed)
        sat = lineup.duration[shared.rows].astype(np.float64) * 1e6
        return shared, sat - shared.least(sat), "duration"
    noted = np.logical_and.reduceat(lineup.completed[shared.rows] > 0, shared.start)
    if noted.mean() >= 0.5:
        shared = shared.only(noted)
        sat = (lineup.completed[shared.rows] - lineup.created[shared.rows]).astype(np.float64)
        return shared, sat - shared.least(sat), "end"
    unsure = [clock.uncertain_ns for clock in clocks.values()]
    if any(half is None for half in unsure):
        return shared, None, ""
    ahead = np.zeros(lineup.world + 1, np.int64)
    for rank, clock in clocks.items():
        ahead[rank] = clock.ahead_ns
    came = (lineup.created[shared.rows] - ahead[lineup.rank[shared.rows]]).astype(np.float64)
    waits = -shared.least(-came) - came
    return shared, np.maximum(waits - max(half or 0 for half in unsure), 0), "arrival"


def _judge(lineup: Lineup, shared: _Shared, waits: npt.NDArray[np.float64], measure: str) -> Late | None:
    rows = shared.rows
    created = lineup.created[rows]
    met = np.bincount(lineup.rank[rows])
    ranks = np.flatnonzero(met)
    count = met[ranks]
    if len(ranks) < 2 or count.min() < ENOUGH:
        return None
    inverse = (np.cumsum(met > 0) - 1)[lineup.rank[rows]]
    total = np.bincount(inverse, waits).astype(np.float64)
    mean = total / count
    begin = np.full(len(ranks), np.iinfo(np.int64).max)
    end = np.zeros(len(ranks), np.int64)
    np.minimum.at(begin, inverse, created)
    np.maximum.at(end, inverse, created)
    span = _median(end - begin)
    late = _apart(total)
    if not late or span <= 0:
        return None
    others = [i for i in range(len(ranks)) if i not in late]
    worst = min(late, key=lambda i: total[i])
    share = float(_median(total[others]) - total[worst]) * shared.every / span
    gain = float(_median(mean[others]) - mean[worst])
    if share < SHARE or gain < FLOOR_NS or _steadiness(inverse, rows, waits, late, len(ranks)) < STEADY:
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


def _apart(total: npt.NDArray[np.float64]) -> list[int]:
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
    waits: npt.NDArray[np.float64],
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


def _gap(mean: npt.NDArray[np.float64], late: list[int]) -> float:
    """How much longer the others usually wait."""
    return float(_median(np.delete(mean, late)) - mean[late].max())
