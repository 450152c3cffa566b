"""How long an all-reduce of another size would take, by those that were recorded, and how sure that is.

A call costs something before it moves a byte, and each byte costs something: time = a + b · bytes, fitted to the usual
times of the sizes that occur. Transfers that ran beside each other (Gloo moves two at once) may have slowed each other
down, up to sharing all of the rate: the share that explains the recorded times best is taken, and every share that
explains them about as well counts towards what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from whichrank.records.profiles.trace import Floats
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.replay import Play, ends_of

SMALL = 256 << 10
"""On a device an all-reduce of this size takes about as long as an empty one (nccl-tests on any recent GPU)."""
FEWEST = 4
"""All-reduces that are too few to tell anything by."""
SHARES = (1.0, 0.5, 0.0)
"""How much of the rate transfers take from each other that run at the same time: all, half, none."""
ABOUT = 1.1
"""Fits whose errors differ by less than this factor are equally good."""
FLOOR = 0.02
"""No typical time is known better than this."""


class Part(Struct, frozen=True):
    """An all-reduce that becomes a part of a larger one."""

    op: int
    bytes: float


class Cost(Struct, frozen=True):
    """What all-reduces cost in nanoseconds, under one assumption about what they share."""

    alone: Mapping[int, float]
    """By operation: how long it would have taken with nothing beside it."""
    per_call: float
    per_byte: float
    error: Floats
    """Covariance of the two; infinite where one size can't tell them apart."""
    small: float = 0.0
    """Up to so many bytes the size does not matter."""

    def merged(self, parts: Sequence[Part], lean: int = 0) -> float:
        """How long one all-reduce of all these takes: -1 at least, 1 at most, 0 most likely.

        It takes no less than the longest of its parts, and no more than one after the other.
        """
        times = [self.alone.get(part.op, 0.0) for part in parts]  # some took no time, or tell no size
        size = sum(part.bytes for part in parts)
        least, most = max(times), sum(times)
        if self.small:  # all of one small size: a call's price, then at worst the rate that was seen
            likely = self.per_call * max(1.0, size / self.small)
            reach = 2 * likely if size <= self.small else most
            return min(max((least, likely, reach)[lean + 1], least), most)
        if not np.isfinite(self.error).all():
            return (least, (least + most) / 2, most)[lean + 1]
        spread = float(np.sqrt(max(0.0, np.array([1.0, size]) @ self.error @ np.array([1.0, size]))))
        return min(max(self.per_call + self.per_byte * size + 2 * lean * spread, least), most)


def costs(play: Play, matched: Matched) -> list[Cost]:
    """What all-reduces cost, the most likely first; others that explain the recording about as well after it."""
    ops = [
        op
        for op, what in enumerate(matched.what)
        if what.op == "all_reduce" and payload(what) and op in play.transfer and play.transfer[op] > 0
    ]
    if len(ops) < FEWEST:
        return []
    sizes = np.array([float(payload(matched.what[op]) or 0) for op in ops])
    took = np.array([play.transfer[op] for op in ops])
    beside = _beside(play, matched, ops)
    shares = SHARES if (beside > 0).any() else SHARES[-1:]
    found = [_fitted(ops, sizes, took / (1 + share * beside)) for share in shares]
    small = matched.ranks[0].on_device and len(set(sizes.tolist())) == 1 and sizes[0] <= SMALL
    found = [(miss, replace(cost, small=float(SMALL)) if small else cost) for miss, cost in found]
    found.sort(key=lambda one: one[0])
    return [cost for miss, cost in found if miss <= ABOUT * found[0][0]]


def _fitted(ops: Sequence[int], sizes: Floats, times: Floats) -> tuple[float, Cost]:
    """The line through the typical times of the sizes, and how far off the single times are from it."""
    alone = dict(zip(ops, times.tolist(), strict=True))
    kinds = sorted(set(sizes.tolist()))
    typical = np.array([median(times[sizes == kind]) for kind in kinds])
    sure = np.array([_doubt(times[sizes == kind], middle) for kind, middle in zip(kinds, typical, strict=True)])
    if len(kinds) == 1:
        miss = median(np.abs(times / typical[0] - 1))
        return miss, Cost(alone, float(typical[0]), 0.0, np.full((2, 2), np.inf))
    columns = np.stack((np.ones(len(kinds)), np.array(kinds)), axis=1)
    weighted = columns / sure[:, None]
    error = np.linalg.inv(weighted.T @ weighted)
    per_call, per_byte = error @ weighted.T @ (typical / sure)
    if per_byte < 0:
        per_call, per_byte = float(np.average(typical, weights=sure**-2)), 0.0
    elif per_call < 0:
        per_call, per_byte = 0.0, float(weighted[:, 1] @ (typical / sure) / (weighted[:, 1] @ weighted[:, 1]))
    off = (typical - columns @ np.array([per_call, per_byte])) / sure
    if len(kinds) > 2:  # a line that misses the typical times is known less well than they are
        error *= max(1.0, float(off @ off) / (len(kinds) - 2))
    line = per_call + per_byte * sizes
    return median(np.abs(times / line - 1)), Cost(alone, float(per_call), float(per_byte), error)


def _doubt(times: Floats, middle: float) -> float:
    """The standard error of a median, by how far the times scatter."""
    scatter = 1.4826 * median(np.abs(times - middle)) if len(times) > 2 else middle / 2
    return float(max(1.2533 * scatter / len(times) ** 0.5, FLOOR * middle))


def _beside(play: Play, matched: Matched, ops: Sequence[int]) -> Floats:
    """How many others ran beside each transfer, on average over its time."""
    every = np.array(sorted(play.transfer), np.int64)
    over = np.asarray(ends_of(matched))[every]
    begun = over - np.array([play.transfer[op] for op in every.tolist()])
    edges = np.sort(np.concatenate((begun, over)))
    steps = [second - first for first, second in pairwise(edges.tolist())]
    middle = (edges[:-1] + edges[1:]) / 2
    active = np.searchsorted(np.sort(begun), middle) - np.searchsorted(np.sort(over), middle)
    passed = np.concatenate(([0.0], np.cumsum(np.array(steps) * active)))
    row = np.searchsorted(every, np.array(ops))
    first, last = np.searchsorted(edges, begun[row]), np.searchsorted(edges, over[row])
    found: Floats = (passed[last] - passed[first]) / np.maximum(over[row] - begun[row], 1e-9) - 1
    return np.maximum(found, 0.0)
