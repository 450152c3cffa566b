"""DDP's backward pass with buckets of another size, larger or smaller, replayed gradient by gradient.

A profile of `whichrank profile` tells which gradients each bucket holds, how large they are and in which order they
become ready; a CPU job's operators tell when. Buckets are filled in that order up to the cap, as DDP fills them. Each
is reduced once its last gradient is ready on all ranks and a lane (one of Gloo's threads) is free: a price for the
call, then its bytes, at a rate that it shares with what runs beside it. Price and rate are those that make the recorded
buckets end when they did; all that explain the recording about as well count towards what is not known. On a device
the host's operators don't tell when a gradient is ready: there the recorded buckets can only be merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from whichrank.model.step_report import BucketSize
from whichrank.records.profiles.trace import Filled, Floats, Longs
from whichrank.timeline.steps.collectives import payload
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.matching import Matched
from whichrank.timeline.steps.replay import ends_of

LANES = 2
"""Threads of a process that Gloo moves data with (torch/csrc/distributed/c10d/ProcessGroupGloo.hpp: threads = 2)."""
FINE = 12
"""Prices of a call that are tried between none and the shortest recorded transfer, and rates for each of them."""
MOST = 2000
"""Gradients of the largest model that is replayed: seconds of CPU."""
SMALLEST = 1 << 14
"""Bytes of the smallest buckets that are looked at: less is all call."""
ROUNDS = 4
"""How often the search for a rate narrows."""
FLOOR = 0.02
"""Of a transfer: no smaller error tells two prices apart."""


class Price(NamedTuple):
    """What an all-reduce costs in nanoseconds: for the call, and for each byte when it has the network alone."""

    per_call: float
    per_byte: float


class Predicted(NamedTuple):
    """What a step would take, in nanoseconds: most likely, at least, at most."""

    likely: float
    low: float
    high: float
    buckets: int


class Backward(Struct, dict=True):
    """The typical backward pass of a recording. Moments are counted from its first gradient, in nanoseconds."""

    sizes: Sequence[int]
    """Bytes of each gradient in the order in which they become ready."""
    recorded: Sequence[int]
    """How many gradients each bucket of the recording holds."""
    ready: Floats
    """When the last rank has each gradient."""
    begins: Floats
    ends: Floats
    """When each recorded bucket's transfer began, and when it was over."""
    per_step: float = 1.0
    """Passes of a step that reduce gradients."""

    @cached_property
    def lag(self) -> float:
        """From a bucket's last gradient to the beginning of its transfer, unless all lanes are taken."""
        return max(0.0, float((self.begins - self.ready[np.cumsum(self.recorded) - 1]).min()))

    def over(self, counts: Sequence[int], price: Price) -> Floats:
        """When each bucket is reduced, if they hold so many gradients each."""
        edges = np.concatenate(([0], np.cumsum(counts)))
        held = np.concatenate(([0], np.cumsum(self.sizes)))[edges]
        return reduced_at(self.ready[edges[1:] - 1] + self.lag, np.diff(held), price)

    @cached_property
    def prices(self) -> list[Price]:
        """Prices that explain the recording about as well as the best one; that with the cheapest call first.

        Few buckets tell little about two unknowns: the fewer, the more may be missed (the F test's rule of thumb)."""
        tried = [(self._miss(price), price) for price in self._candidates()]
        spare = max(len(self.recorded) - 2, 0.5)
        limit = max(min(tried)[0] * (1 + 2 / spare), FLOOR * float(np.mean(self.ends - self.begun)))
        return sorted(price for miss, price in tried if miss <= limit)

    @property
    def begun(self) -> Floats:
        """When each recorded bucket would have begun with a lane free."""
        found: Floats = self.ready[np.cumsum(self.recorded) - 1] + self.lag
        return found

    def _miss(self, price: Price) -> float:
        return float(np.abs(self.over(self.recorded, price) - self.ends).mean())

    def _candidates(self) -> Iterator[Price]:
        """Prices of a call up to that of the shortest transfer, each with the rate that fits it best."""
        took = self.ends - self.begun
        most, usual = float(took.min()), float(took.sum()) / sum(self.sizes)
        for call in np.linspace(0.0, max(most, 0.0), FINE):
            rates = usual * np.geomspace(0.1, 2.0, FINE)
            for _ in range(ROUNDS):
                misses = [self._miss(Price(float(call), float(rate))) for rate in rates]
                best = int(np.argmin(misses))
                low, high = rates[max(0, best - 1)], rates[min(len(rates) - 1, best + 1)]
                rates = np.linspace(low, high, FINE)
            yield Price(float(call), float(rates[FINE // 2]))

    def filled(self, cap: float, first: float | None = None) -> list[int]:
        """How many gradients each bucket holds: one is full once it holds `cap` bytes or more (the first: `first`)."""
        counts, inside, held, limit = [], 0, 0, first or cap
        for size in self.sizes:
            inside, held = inside + 1, held + size
            if held >= limit:
                counts.append(inside)
                inside, held, limit = 0, 0, cap
        return [*counts, inside] if inside else counts

    def gain(self, counts: Sequence[int], price: Price) -> float:
        """Nanoseconds by which the pass is shorter with buckets of so many gradients than with the recorded ones."""
        done = float(self.ready[-1]) + self.lag
        then, now = (max(done, float(self.over(one, price).max())) for one in (self.recorded, counts))
        return then - now

    def predicted(self, step_ns: float, counts: Sequence[int]) -> Predicted:
        """A step of the recording with buckets of so many gradients each."""
        steps = [step_ns - self.per_step * self.gain(counts, price) for price in self.prices]
        return Predicted(steps[0], min(steps), max(steps), len(counts))


def reduced_at(ready: Floats, sizes: Floats, price: Price) -> Floats:
    """When each all-reduce ends that is ready at these moments: in order, `LANES` at a time, sharing the rate."""
    over = np.zeros(len(ready))
    active: dict[int, list[float]] = {}  # what is left of each: nanoseconds of its call, and of its bytes alone
    now, place = 0.0, 0
    while active or place < len(ready):
        while place < len(ready) and len(active) < LANES and (ready[place] <= now or not active):
            now = max(now, float(ready[place]))
            active[place] = [price.per_call, float(sizes[place]) * price.per_byte]
            place += 1
        moving = sum(call <= 0 for call, _ in active.values())
        takes = min(call if call > 0 else rest * moving for call, rest in active.values())
        if place < len(ready) and len(active) < LANES:
            takes = min(takes, float(ready[place]) - now)
        now += takes
        for op, left in list(active.items()):
            if left[0] > 0:
                left[0] = left[0] - takes if left[0] > takes else 0.0
            else:
                left[1] -= takes / moving
            if left[0] <= 0 and left[1] <= 1e-6:
                over[op] = now
                del active[op]
    return over


def backward_of(matched: Matched) -> Backward | None:
    """The typical backward pass; None where the recording does not tell all of its gradients."""
    told = matched.ranks[0].ddp_buckets
    sizes = [size for one in told for size in one.sizes]
    if any(sum(one.sizes) != one.bytes or len(one.sizes) != len(one.parameters) for one in told):
        return None
    ops = _bucket_ops(matched, told) if 0 < len(sizes) <= MOST else []
    ready = _ready(matched, len(ops), len(sizes)) if ops else None
    if ready is None:
        return None
    over, first = ends_of(matched), matched.first
    begins = np.array([[matched.start[first[op] : first[op + 1]].max() for op in each] for each in ops])
    ends = np.array([[over[op] for op in each] for each in ops])
    each, began, ended = (_typical(moments - ready[:, :1]) for moments in (ready, begins, ends))
    per_step = len(ops) / max(1, len(matched.ranks[0].ids))
    found = Backward(sizes, [len(one.sizes) for one in told], each, began, ended, per_step)
    return found if (found.ends > found.begun).all() else None


def _typical(rows: Longs | Floats) -> Floats:
    return np.array([median(column) for column in rows.T], np.float64)


def _bucket_ops(matched: Matched, told: Sequence[Filled]) -> list[list[int]]:
    """The all-reduces of each pass, known by their order and sizes; others (a loss) may come between them."""
    found: list[list[int]] = []
    mine = np.flatnonzero(matched.rank == 0)
    inside = matched.step[matched.op[mine]] >= 0
    mine = mine[inside][np.argsort(matched.start[mine[inside]], kind="stable")]
    place = 0
    sized = any(payload(what) is not None for what in matched.what if what.op == "all_reduce")
    for op in matched.op[mine].tolist():
        what = matched.what[op]
        if what.op == "all_reduce" and payload(what) == (told[place].bytes if sized else None):
            if place == 0:
                found.append([])
            found[-1].append(op)
            place = (place + 1) % len(told)
    return found if place == 0 and all(_whole(matched, op) for each in found for op in each) else []


def _whole(matched: Matched, op: int) -> bool:
    """Whether all members of the operation were profiled, and nobody else: no wait for a stranger is in its time."""
    members = int(matched.first[op + 1] - matched.first[op])
    return members == len(matched.ranks) == (matched.what[op].size or matched.ranks[0].world or members)


def _ready(matched: Matched, passes: int, gradients: int) -> Longs | None:
    """When the last rank has each gradient, on the aligned clock: one row for each pass."""
    found = []
    for index, one in enumerate(matched.ranks):
        inside = (one.gradients >= one.start[0]) & (one.gradients <= one.finish)
        moments = one.gradients[inside] + one.base_ns - matched.offset[index]
        if len(moments) != passes * gradients:
            return None
        found.append(moments.reshape(passes, gradients))
    latest: Longs = np.max(np.stack(found), axis=0)
    return latest


def caps(backward: Backward) -> list[float]:
    """Bucket sizes worth a look, in bytes: from a bucket for (almost) each gradient to one for all."""
    found: dict[tuple[int, ...], float] = {}
    cap = float(SMALLEST)
    while cap < 2 * sum(backward.sizes):
        found[tuple(backward.filled(cap))] = cap
        cap *= 2
    return list(found.values())


def bucket_sizes(backward: Backward, step_ns: float) -> list[BucketSize]:
    """What a step of the recording would take with these bucket sizes."""
    found = []
    for cap in caps(backward):
        one = backward.predicted(step_ns, backward.filled(cap))
        found.append(BucketSize(cap / (1 << 20), one.buckets, one.likely / 1e3, (one.low / 1e3, one.high / 1e3)))
    return found
