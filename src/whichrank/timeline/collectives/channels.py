"""Sends and receives, by directed pair of ranks within a group."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.model.late_pattern import late
from whichrank.records.stack import is_user_frame
from whichrank.timeline.collectives.lineup import Lineup

_P2P = late(r"^(send|recv)\s+(\d{1,9})\s*(?:->|<-)\s*(\d{1,9})$")

_LARGEST_BATCH = 4096

Rows = npt.NDArray[np.intp]


class Channel(Struct, frozen=True):
    """All messages from one rank to another within a group, in the order of issue on either side."""

    group: int
    source: int
    target: int
    sends: Rows
    receives: Rows


def direction(op: str) -> tuple[str, int, int] | None:
    """Verb, own rank and peer of `send 0->1` or `recv 1<-0`, as ranks within the group."""
    match = _P2P.match(op)
    return (match[1], int(match[2]), int(match[3])) if match else None


def in_batch(lineup: Lineup, row: int) -> bool:
    """Whether a message was posted together with others (`batch_isend_irecv`): their order does not matter."""
    _, stop = lineup.first[int(lineup.rank[row])]
    for later in range(row + 1, min(stop, row + _LARGEST_BATCH)):
        same = lineup.group[later] == lineup.group[row]
        if same and (not lineup.p2p[later] or lineup.call_of(later).op == "coalesced"):
            return bool(lineup.p2p[later]) and _from_one_line(lineup, row, later)
    return False


def _from_one_line(lineup: Lineup, row: int, other: int) -> bool:
    """Whether one line of the program issued both; also where the recorder does not tell lines."""
    one, two = (next(filter(is_user_frame, lineup.call_of(each).stack), None) for each in (row, other))
    return one is None or two is None or (one.file, one.line) == (two.file, two.line)


def in_one_batch(lineup: Lineup, one: int, other: int) -> bool:
    """Whether two messages of a rank were posted by the same `batch_isend_irecv`."""
    between = range(min(one, other), max(one, other))
    if len(between) > _LARGEST_BATCH or not in_batch(lineup, one):
        return False
    return all(lineup.p2p[row] and lineup.call_of(row).op != "coalesced" for row in between)


def channels(lineup: Lineup) -> list[Channel]:
    """Every channel that somebody has used."""
    rows = np.flatnonzero(lineup.p2p & (lineup.group >= 0))
    if not len(rows):
        return []
    parsed = [direction(call.op) for call in lineup.calls]
    peer_of = np.array([p[2] if p else -1 for p in parsed], np.int64)
    sends = np.array([p is not None and p[0] == "send" for p in parsed], np.bool_)
    sizes = np.array([len(group.members) for group in lineup.groups], np.int64)
    first = np.cumsum(sizes) - sizes
    members = np.array([rank for group in lineup.groups for rank in group.members], np.int64)
    group, peer = lineup.group[rows], peer_of[lineup.call[rows]]
    known = (peer >= 0) & (peer < sizes[group])
    rows, group, peer = rows[known], group[known].astype(np.int64), peer[known]
    other, own = members[first[group] + peer], lineup.rank[rows].astype(np.int64)
    sending = sends[lineup.call[rows]]
    ends = np.stack([group, np.where(sending, own, other), np.where(sending, other, own)], axis=1)
    distinct, number = np.unique(ends, axis=0, return_inverse=True)
    order = np.argsort(number.reshape(-1) * 2 + ~sending, kind="stable")
    cuts = np.searchsorted((number.reshape(-1) * 2 + ~sending)[order], np.arange(2 * len(distinct) + 1))
    parts = [rows[order[a:b]] for a, b in pairwise(cuts.tolist())]
    return [
        Channel(group, source, target, parts[2 * i], parts[2 * i + 1])
        for i, (group, source, target) in enumerate(distinct.tolist())
    ]
