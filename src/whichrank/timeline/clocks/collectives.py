"""Clocks of different hosts, aligned by the collectives themselves.

Nobody leaves a synchronising operation before everybody has come to it. So what a rank notes after it (its
end, or the next thing it issues) is later than every member's arrival. Each such pair bounds the difference
of two clocks from one side; many of them, in both directions, leave a narrow interval.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.signature import proves_all_joined

SAMPLE = 256
_NEVER = np.iinfo(np.int64).max // 4
"""Stands for a time that nobody noted."""


class Clock(Struct, frozen=True):
    """How far a rank's clock is ahead of the reference rank's."""

    ahead_ns: int
    uncertain_ns: int | None
    """Half the width of the interval; None if the bounds contradict each other or there are none."""


def complete_meetings(lineup: Lineup, group: int, newest: int = SAMPLE) -> tuple[list[int], npt.NDArray[np.intp]]:
    """The group's dumped members, and a matrix of rows: its newest synchronising meetings that all finished."""
    rows = lineup.rows_of_group(group)
    gathers = np.array([proves_all_joined(s.op) for s in lineup.signatures], np.bool_)
    gathered = gathers[lineup.call_signature][lineup.call[rows].astype(np.intp)]
    rows = rows[~lineup.p2p[rows] & lineup.done[rows] & gathered]
    rank = lineup.rank[rows]
    starts = np.flatnonzero(np.diff(rank, prepend=-1))
    members = rank[starts].tolist()
    if len(members) < 2:
        return members, np.empty((0, len(members)), np.intp)
    per_rank = []
    for part in np.split(rows, starts[1:]):
        mine = part[-4 * newest :]
        seq = lineup.seq[mine]
        if np.any(seq[1:] <= seq[:-1]):
            seq, first = np.unique(seq, return_index=True)
            mine = mine[first]
        per_rank.append((seq, mine))
    common = per_rank[0][0]
    for seq, _ in per_rank[1:]:
        if not np.array_equal(seq, common):
            common = np.intersect1d(common, seq, assume_unique=True)
    common = common[-newest:]
    columns = [mine[np.searchsorted(seq, common)] for seq, mine in per_rank]
    return members, np.stack(columns, axis=1)


def _after(lineup: Lineup, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """A time that each rank noted after it left the operation; a very late one where it noted none."""
    noted = lineup.completed[rows]
    following = np.minimum(rows + 1, len(lineup) - 1)
    same = (lineup.rank[following] == lineup.rank[rows]) & (following != rows)
    issued = np.where(same, lineup.created[following], _NEVER)
    return np.where(noted > 0, noted, issued)


def _least_gap(left: npt.NDArray[np.int64], came: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Per rank, the shortest time from a coming to a leaving that was noted."""
    gaps: npt.NDArray[np.int64] = np.where(left == _NEVER, _NEVER, left - came).min(axis=0)
    return gaps


def align(lineup: Lineup) -> dict[int, Clock]:
    """Every dumped rank's clock against the first one's."""
    clocks: dict[int, Clock] = {lineup.dumped[0]: Clock(0, 0)} if lineup.dumped else {}
    by_size = sorted(range(len(lineup.groups)), key=lambda g: -len(lineup.groups[g].members))
    for _ in range(3):
        for group in by_size:
            members = [m for m in lineup.groups[group].members if m in lineup.first]
            if not any(m in clocks for m in members) or all(m in clocks for m in members):
                continue
            _spread(lineup, group, clocks)
    return {rank: clocks.get(rank, Clock(0, None)) for rank in lineup.dumped}


def _spread(lineup: Lineup, group: int, clocks: dict[int, Clock]) -> None:
    """Learn the clocks of a group's members from one that is known."""
    ranks, rows = complete_meetings(lineup, group)
    known = next((i for i, rank in enumerate(ranks) if rank in clocks), None)
    if known is None or not len(rows):
        return
    came, left = lineup.created[rows], _after(lineup, rows)
    # ahead <= what they noted on leaving - when the known rank came, and the same the other way round.
    highest = _least_gap(left, came[:, known : known + 1])
    lowest = -_least_gap(left[:, known : known + 1], came)
    base = clocks[ranks[known]]
    for i, rank in enumerate(ranks):
        low, high = int(lowest[i]), int(highest[i])
        if _NEVER in (-low, high):  # bounded from one side at most: the least difference that fits
            clocks.setdefault(rank, Clock(min(max(0, low), high) + base.ahead_ns, None))
            continue
        sure = low <= high and base.uncertain_ns is not None
        half = (high - low) // 2 + (base.uncertain_ns or 0) if sure else None
        clocks.setdefault(rank, Clock((low + high) // 2 + base.ahead_ns, half))
