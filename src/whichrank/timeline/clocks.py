"""Clocks of different hosts, aligned by the collectives themselves.

Members of a synchronising collective finish together. Where the recorder noted when that was, the
difference of the notes is the difference of the clocks; else the difference of the arrivals, which is
the same but for how late each rank usually is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whichrank.timeline.lineup import Lineup

SAMPLE = 64


def complete_meetings(lineup: Lineup, group: int, newest: int = SAMPLE) -> tuple[list[int], npt.NDArray[np.intp]]:
    """The group's dumped members, and a matrix of rows: its newest meetings that all of them finished."""
    rows = lineup.rows_of_group(group)
    rows = rows[~lineup.p2p[rows] & lineup.done[rows]]
    distinct, starts = np.unique(lineup.rank[rows], return_index=True)
    members = distinct.tolist()
    per_rank = []
    for mine in np.split(rows, starts[1:]) if len(rows) else []:
        mine = mine[-4 * newest :]
        seq, first = np.unique(lineup.seq[mine], return_index=True)
        per_rank.append((seq, mine[first]))
    if len(members) < 2:
        return members, np.empty((0, len(members)), np.intp)
    common = per_rank[0][0]
    for seq, _ in per_rank[1:]:
        common = np.intersect1d(common, seq, assume_unique=True)
    common = common[-newest:]
    columns = [mine[np.searchsorted(seq, common)] for seq, mine in per_rank]
    return members, np.stack(columns, axis=1) if len(common) else np.empty((0, len(members)), np.intp)


def align(lineup: Lineup) -> dict[int, int]:
    """Nanoseconds to subtract from each rank's times so that all run on the first rank's clock."""
    offsets: dict[int, int] = {}
    if not lineup.dumped:
        return offsets
    offsets[lineup.dumped[0]] = 0
    todo = sorted(range(len(lineup.groups)), key=lambda g: -len(lineup.groups[g].members))
    for _ in range(3):
        for group in todo:
            members = [m for m in lineup.groups[group].members if m in lineup.first]
            if not any(m in offsets for m in members) or all(m in offsets for m in members):
                continue
            ranks, matrix = complete_meetings(lineup, group)
            if not len(matrix):
                continue
            noted = lineup.completed[matrix]
            times = noted if (noted > 0).all() else lineup.created[matrix]
            known = next((i for i, rank in enumerate(ranks) if rank in offsets), None)
            if known is None:
                continue
            shift = np.median(times - times[:, known : known + 1], axis=0)
            for i, rank in enumerate(ranks):
                offsets.setdefault(rank, int(shift[i]) + offsets[ranks[known]])
    return {rank: offsets.get(rank, 0) for rank in lineup.dumped}
