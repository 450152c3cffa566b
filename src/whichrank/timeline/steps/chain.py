"""The chain of one rank: when it was ready for each collective, when it waited for one, and its own time between.

A gap in the work in which a collective ends is a wait for it if what follows could not have begun before: it was
launched already, or the host itself sat in a call that waits. Otherwise the host was late, and the time is its own.
"""

from __future__ import annotations

import numpy as np

from whichrank.records.profiles.steps import ARRIVE, OTHER, SYNCHRONISING, WAIT, WORKING, Links
from whichrank.records.profiles.trace import Longs, Trace
from whichrank.timeline.steps.intervals import Cover, gaps
from whichrank.timeline.steps.work import Work, by_reason

SHORT_NS = 2_000
"""Gaps that are shorter are the device's own pace, not waits."""
LATE_NS = 1_000_000
"""How late a host thread may note the end of what it moved, besides a tenth of the wait."""
WOKEN_NS = 5_000_000
"""How long a thread of a busy host may take to go on after what it waited for."""
TOP = 4


def link_up(trace: Trace, work: Work, launched: Longs, bounds: tuple[int, int], ready: Longs) -> tuple[Links, Longs]:
    """The chain between two moments, and how the time after its last link was spent."""
    start, end = bounds
    waits, waited = _waits(trace, work, launched, bounds)
    at = np.concatenate((ready, waits.end))
    kind = np.concatenate((np.full(len(ready), ARRIVE, np.int8), np.full(len(waits.start), WAIT, np.int8)))
    call = np.concatenate((np.arange(len(ready)), waited)).astype(np.int32)
    inside = (at >= start) & (at <= end)
    order = np.flatnonzero(inside)[np.lexsort((kind[inside], at[inside]))]
    at, kind, call = at[order], kind[order], call[order]
    edges = np.concatenate(([start], at, [end]))
    waiting = Cover(waits.start, waits.end)
    if not work.on_device:  # nobody waits for what it has not called yet
        waiting = waiting & work.communication
    own = np.diff(edges) - waiting.within(edges[:-1], edges[1:])
    spent = _spent(work, waiting, edges)
    top, top_ns = _top(trace, work, edges)
    links = Links(kind, call, at, own[:-1], spent[:-1], top[:-1], top_ns[:-1])
    return links, spent[-1]


def _waits(trace: Trace, work: Work, launched: Longs, bounds: tuple[int, int]) -> tuple[Cover, Longs]:
    """Times in which the rank could not go on before a collective had ended, and those collectives."""
    calls = work.calls
    idle = gaps(work.compute | work.memory, *bounds)
    long = idle.end - idle.start > SHORT_NS
    start, end = idle.start[long], idle.end[long]
    if not len(calls) or not len(start):
        return Cover(), np.empty(0, np.int64)
    order = np.argsort(calls.end, kind="stable")
    ends = calls.end[order]
    last = np.searchsorted(ends, end, side="right") - 1
    over, which = ends[np.maximum(last, 0)], order[np.maximum(last, 0)]
    ended = (last >= 0) & (over > start)
    if not work.on_device:
        # A thread of the host that moves data notes its end a little after it has woken the one that waits.
        soon = np.minimum(last + 1, len(ends) - 1)
        slack = np.maximum(LATE_NS, (end - start) // 10)
        near = ~ended & (end - start > LATE_NS // 5) & (ends[soon] >= end) & (ends[soon] - end < slack)
        near &= calls.start[order[soon]] <= start + slack
        over, which, ended = np.where(near, end, over), np.where(near, order[soon], which), ended | near
        # Who goes on long after the end did not wait for it: it slept, read or computed where nothing shows.
        ended &= end - over <= np.maximum(WOKEN_NS, over - start)
    if work.on_device:
        ended &= _could_not_begin(trace, work, launched, end, over)
    return Cover(start[ended], over[ended]), which[ended]


def _could_not_begin(
    trace: Trace, work: Work, launched: Longs, resumed: Longs, over: Longs
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether what ended a gap had been launched before the collective's end, or the host waited for that end."""
    device = trace.device
    place = np.minimum(np.searchsorted(device.start, resumed, side="left"), len(device) - 1)
    queued = (launched[place] <= over) & (device.start[place] >= resumed)
    waiting = work.why[SYNCHRONISING]
    index = np.searchsorted(waiting.start, over, side="right") - 1
    sat = np.zeros(len(over), np.bool_)
    if len(waiting.start):
        sat = (index >= 0) & (waiting.end[np.maximum(index, 0)] >= over)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = queued | sat
    return found


def _spent(work: Work, waiting: Cover, edges: Longs) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Own time between the edges by what it was spent on."""
    spent = np.zeros((len(edges) - 1, WORKING + 1), np.int64)
    first, last = edges[:-1], edges[1:]
    working = work.compute | work.memory
    spent[:, WORKING] = working.within(first, last)
    for reason, cover in by_reason(work.why, working | waiting).items():
        spent[:, reason] = cover.within(first, last)
    spent[:, OTHER] = np.maximum(last - first - waiting.within(first, last) - spent.sum(axis=1), 0)
    return spent


def _top(
    trace: Trace, work: Work, edges: Longs
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """What took the most time in each stretch: kernels or operators, and the host's marks for waiting."""
    count = len(edges) - 1
    names = np.concatenate((work.spans.name, work.why_spans.name)).astype(np.int64)
    starts = np.concatenate((work.spans.start, work.why_spans.start))
    length = np.concatenate((work.spans.end - work.spans.start, work.why_spans.end - work.why_spans.start))
    top, top_ns = np.full((count, TOP), -1, np.int32), np.zeros((count, TOP), np.int64)
    place = np.searchsorted(edges, starts, side="right") - 1
    inside = (place >= 0) & (place < count)
    wide = max(1, len(trace.names))
    keys, inverse = np.unique(place[inside] * wide + names[inside], return_inverse=True)
    if not len(keys):
        return top, top_ns
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse.reshape(-1), length[inside])
    stretch = keys // wide
    order = np.lexsort((-sums, stretch))
    stretch, keys, sums = stretch[order], keys[order], sums[order]
    rank = np.arange(len(stretch)) - np.searchsorted(stretch, stretch, side="left")
    best = rank < TOP
    top[stretch[best], rank[best]] = keys[best] % wide
    top_ns[stretch[best], rank[best]] = sums[best]
    return top, top_ns
