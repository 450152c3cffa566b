"""Who is steadily late: the late rank waits least.

Clocks of hosts differ, so arrival times are never compared across ranks directly. Two measures need no
common clock: how long a rank sat in an operation (the late one hardly waits), and how long it took from
one operation to the next compared with what the others took (the late one takes longer before the
operation that everybody then waits in).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whichrank.timeline.clocks import complete_meetings
from whichrank.timeline.lineup import Lineup

# Below this many shared operations lateness is chance.
ENOUGH = 24
# A straggler costs at least this share of the time, and is late in at least this share of the steps.
SHARE, STEADY = 0.10, 0.6
SAMPLE = 512
FLOOR_NS = 3_000_000


@dataclass(frozen=True, slots=True)
class Late:
    """Ranks that hold up a group."""

    ranks: tuple[int, ...]
    group: int
    share: float
    """Part of the time that the others lose."""
    lost_ns: int
    """Per operation that it is late for."""
    steady: float
    """Part of the steps in which it was the last."""
    row: int
    measure: str


def find_late(lineup: Lineup) -> Late | None:
    """The worst straggler of any group, if there is a clear one."""
    found = [late for group in range(len(lineup.groups)) for late in _in_group(lineup, group)]
    return max(found, key=lambda late: late.share, default=None)


def _in_group(lineup: Lineup, group: int) -> list[Late]:
    if sum(member in lineup.first for member in lineup.groups[group].members) < 2:
        return []
    ranks, rows = complete_meetings(lineup, group, SAMPLE)
    if len(rows) < ENOUGH:
        return []
    created = lineup.created[rows]
    span = float(np.median(created[-1] - created[0]))
    if span <= 0:
        return []
    late = _by_waiting(lineup, group, ranks, rows, span) or _by_gaps(group, ranks, rows, created, span)
    return [late] if late else []


def _by_waiting(lineup: Lineup, group: int, ranks: list[int], rows: npt.NDArray[np.intp], span: float) -> Late | None:
    """The late rank's operations are the shortest."""
    durations = lineup.duration[rows].astype(np.float64) * 1e6
    if not np.isfinite(durations).all():
        noted = lineup.completed[rows]
        if (noted <= 0).any():
            return None
        durations = (noted - lineup.created[rows]).astype(np.float64)
    typical = np.median(durations, axis=1, keepdims=True)
    saved = typical - durations  # how much less than its peers a rank waited
    mean = saved.mean(axis=0)
    worst = int(mean.argmax())
    group_of_late = _apart(mean)
    if worst not in group_of_late:
        return None
    lost = float(np.maximum(saved[:, worst], 0).sum())
    steady = float((saved[:, worst] >= 0.5 * mean[worst]).mean())
    if mean[worst] < FLOOR_NS or lost / span < SHARE or steady < STEADY:
        return None
    last = int(rows[-1, worst])
    return Late(tuple(ranks[i] for i in group_of_late), group, min(lost / span, 1.0), int(mean[worst]), steady, last, "waiting")


def _by_gaps(
    group: int, ranks: list[int], rows: npt.NDArray[np.intp], created: npt.NDArray[np.int64], span: float
) -> Late | None:
    """The late rank takes longer than the others from one operation to the next."""
    gaps = np.diff(created, axis=0).astype(np.float64)
    excess = np.maximum(gaps - np.median(gaps, axis=1, keepdims=True), 0)
    total = excess.sum(axis=0)
    worst = int(total.argmax())
    group_of_late = _apart(total)
    if worst not in group_of_late or total[worst] / span < SHARE:
        return None
    events = excess[:, worst] >= max(FLOOR_NS, float(excess[:, worst].max()) * 0.3)
    if events.sum() < 8:
        return None
    # Lateness must be spread over the whole time: one long pause is not a straggler.
    parts = np.array_split(events, 8)
    steady = float(np.mean([part.any() for part in parts if len(part)]))
    per_event = float(excess[events, worst].mean())
    if steady < STEADY or float(total[worst] - excess[:, worst].max()) / span < SHARE:
        return None
    return Late(
        tuple(ranks[i] for i in group_of_late), group, min(float(total[worst]) / span, 1.0), int(per_event), steady,
        int(rows[int(np.flatnonzero(events)[-1]) + 1, worst]), "gaps",
    )


def _apart(score: npt.NDArray[np.float64]) -> list[int]:
    """Members whose score stands clear above all others: at most a quarter of them, at least one."""
    order = np.argsort(score)[::-1]
    most = max(1, len(score) // 4)
    for count in range(1, most + 1):
        inside, outside = score[order[count - 1]], score[order[count]]
        if inside > 3 * max(outside, 0.0) and inside > 0:
            return sorted(int(i) for i in order[:count])
    return []
