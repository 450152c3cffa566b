"""Who came to which collective of a group, as columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.timeline.collectives.lineup import I32, MANY, Bools, Lineup, in_order


class Attendance(Struct):
    """One line per (sequence number, rank), sorted by them; a meeting is the lines with one number."""

    seq: I32
    rank: I32
    row: npt.NDArray[np.intp]
    """The rank's first row in the meeting."""
    brought: npt.NDArray[np.int64]
    """A mark of what it brought: equal where the calls have to be equal and are."""
    done: Bools
    start: npt.NDArray[np.intp]
    """First line of each meeting."""

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """How many ranks came to each meeting."""
        return np.diff(self.start, append=len(self.seq))

    def lines(self, meeting: int) -> slice:
        """The lines of one meeting."""
        stop = self.start[meeting + 1] if meeting + 1 < len(self.start) else len(self.seq)
        return slice(int(self.start[meeting]), int(stop))


def attendance(lineup: Lineup, group: int, every: int = 1) -> Attendance | None:
    """The attendance of a group's collectives, or of every so-manieth; None if it has none."""
    if every > 1 or len(lineup) > MANY:
        return _gathered(lineup, group, every)
    if group not in lineup.attendances:
        lineup.attendances[group] = _gathered(lineup, group)
    return lineup.attendances[group]


def _gathered(lineup: Lineup, group: int, every: int = 1) -> Attendance | None:
    rows = lineup.rows_of_group(group)
    if lineup.has_messages:
        rows = rows[~lineup.p2p[rows]]
    if every > 1:
        rows = rows[lineup.seq[rows] % every == 0]
    if not len(rows):
        return None
    seq = lineup.seq[rows]
    order = in_order(seq)
    seq, rows = seq[order], rows[order]
    rank, brought, done = lineup.rank[rows], lineup.call_marks[lineup.call[rows].astype(np.intp)], lineup.done[rows]
    begins = np.ones(len(seq), np.bool_)
    np.not_equal(seq[1:], seq[:-1], out=begins[1:])
    line = begins.copy()
    line[1:] |= rank[1:] != rank[:-1]
    if not line.all():
        # A coalesced call is several rows of one rank: what it brought is the sum of their marks.
        at = np.flatnonzero(line)
        brought, done = np.add.reduceat(brought, at), np.logical_and.reduceat(done, at)
        seq, rank, rows, begins = seq[at], rank[at], rows[at], begins[at]
    return Attendance(seq, rank, rows, brought, done, np.flatnonzero(begins))
