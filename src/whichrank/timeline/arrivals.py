"""Who is steadily late: the late rank waits least.

For every operation that all members finished, each rank's wait is how much longer it sat there than the member
that sat there shortest. Summed over all groups, the ranks that are held up have waited long and the one that
holds them up hardly at all; a rank that is late in one group because it waited in another has its wait there.

The recorder's own durations need no common clock, nor does "noticed the end minus issued". Gloo notes no ends:
there the arrivals themselves are compared, on clocks that the collectives have aligned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whichrank.timeline.clocks import Clock
from whichrank.timeline.lineup import Lineup
from whichrank.timeline.meetings import Attendance, attendance

# Below this many shared operations lateness is chance.
ENOUGH = 24
# A straggler costs the others at least this share of the time, and waits least in most parts of the run.
SHARE, PARTS, STEADY = 0.10, 8, 0.75
# Shorter waits than this per operation are not worth a report.
FLOOR_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Late:
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


def find_late(lineup: Lineup, clocks: dict[int, Clock]) -> Late | None:
    """The straggler, if there is a clear one."""
    table = attendance(lineup)
    whole = _whole(lineup, table)
    if not whole.any():
        return None
    waits, measure = _waits(lineup, table, clocks)
    if waits is None:
        return None
    use = whole[table.meeting]
    return _judge(lineup, table, waits, use, measure)


def _whole(lineup: Lineup, table: Attendance) -> npt.NDArray[np.bool_]:
    """Meetings that every dumped member has finished, in groups of at least two of them."""
    size = np.array([sum(m in lineup.first for m in g.members) for g in lineup.groups], np.int64)
    here = table.stop - table.start
    wanted = size[table.group[table.start]] if len(table.start) else here
    done = np.logical_and.reduceat(table.done, table.start) if len(table.start) else np.empty(0, np.bool_)
    whole: npt.NDArray[np.bool_] = (here == wanted) & (wanted > 1) & done
    return whole


def _waits(lineup: Lineup, table: Attendance, clocks: dict[int, Clock]) -> tuple[npt.NDArray[np.float64] | None, str]:
    rows = table.row
    duration = lineup.duration[rows].astype(np.float64) * 1e6
    if np.isfinite(duration[table.done]).all():
        return duration - np.minimum.reduceat(duration, table.start)[table.meeting], "duration"
    noted = lineup.completed[rows]
    if (noted[table.done] > 0).all():
        sat = (noted - lineup.created[rows]).astype(np.float64)
        return sat - np.minimum.reduceat(sat, table.start)[table.meeting], "end"
    unsure = [clock.uncertain_ns for clock in clocks.values()]
    if any(half is None for half in unsure):
        return None, ""
    ahead = np.zeros(lineup.world + 1, np.int64)
    for rank, clock in clocks.items():
        ahead[rank] = clock.ahead_ns
    came = (lineup.created[rows] - ahead[table.rank]).astype(np.float64)
    waits = np.maximum.reduceat(came, table.start)[table.meeting] - came
    return np.maximum(waits - max(half or 0 for half in unsure), 0), "arrival"


def _judge(
    lineup: Lineup,
    table: Attendance,
    waits: npt.NDArray[np.float64],
    use: npt.NDArray[np.bool_],
    measure: str,
) -> Late | None:
    rank, created = table.rank[use], lineup.created[table.row[use]]
    waits = waits[use]
    ranks, inverse, count = np.unique(rank, return_inverse=True, return_counts=True)
    if len(ranks) < 2 or count.min() < ENOUGH:
        return None
    total = np.bincount(inverse, waits).astype(np.float64)
    mean = total / count
    begin = np.full(len(ranks), np.iinfo(np.int64).max)
    end = np.zeros(len(ranks), np.int64)
    np.minimum.at(begin, inverse, created)
    np.maximum.at(end, inverse, created)
    span = float(np.median(end - begin))
    late = _apart(total)
    if not late or span <= 0:
        return None
    others = [i for i in range(len(ranks)) if i not in late]
    worst = min(late, key=lambda i: total[i])
    share = float(np.median(total[others]) - total[worst]) / span
    gain = float(np.median(mean[others]) - mean[worst])
    if share < SHARE or gain < FLOOR_NS or _steadiness(inverse, created, waits, late, len(ranks)) < STEADY:
        return None
    row = int(table.row[use][inverse == worst][-1])
    return Late(
        tuple(int(ranks[i]) for i in late),
        min(share, 1.0),
        int(mean[worst]),
        int(np.median(mean[others])),
        int(count[worst]),
        row,
        measure,
    )


def _apart(total: npt.NDArray[np.float64]) -> list[int]:
    """Ranks that waited far less than all others: at most a quarter of them, at least one may be meant."""
    order = np.argsort(total, kind="stable")
    typical = float(np.median(total))
    for count in range(1, max(1, len(total) // 4) + 1):
        inside, outside = float(total[order[count - 1]]), float(total[order[count]])
        if outside - inside >= 0.5 * (typical - float(total[order[0]])) and inside <= 0.5 * outside:
            return sorted(int(i) for i in order[:count])
    return []


def _steadiness(
    inverse: npt.NDArray[np.intp],
    created: npt.NDArray[np.int64],
    waits: npt.NDArray[np.float64],
    late: list[int],
    size: int,
) -> float:
    """In which share of the parts of the run the late ranks waited least: one long pause is no straggler."""
    edges = np.linspace(created.min(), created.max() + 1, PARTS + 1)
    part = np.clip(np.searchsorted(edges, created, side="right") - 1, 0, PARTS - 1)
    least = []
    for number in range(PARTS):
        mine = part == number
        if not mine.any():
            continue
        seen = np.bincount(inverse[mine], minlength=size)
        mean = np.bincount(inverse[mine], waits[mine], minlength=size) / np.maximum(seen, 1)
        least.append(bool(mean[late].max() <= np.delete(mean, late).min()))
    return float(np.mean(least)) if least else 0.0
