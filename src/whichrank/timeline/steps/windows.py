"""Steps of a profile: by the profiler's own marks, by the optimizer's, or by annotations that repeat."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from whichrank.records.profiles.trace import (
    COMMUNICATION,
    COMPUTE,
    MARK,
    MEMORY,
    OPERATOR,
    RUNTIME,
    Longs,
    Spans,
    Trace,
)
from whichrank.timeline.steps.intervals import among, distinct

PROFILER = re.compile(r"^ProfilerStep\s*#\s*(\d{1,18})")
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_DIGITS = re.compile(r"[\s#:_-]{0,40}\d{1,40}\s{0,40}$")
COVERS = 0.6
"""Annotations that repeat are taken for steps where they cover this share of the profile."""


class Windows(Struct, frozen=True):
    """Steps in order; each window ends where the next begins, so that the shares of the steps add up."""

    ids: Longs
    start: Longs
    end: Longs
    marked: bool
    """Whether the profile itself says where steps begin; otherwise all of it is one."""


def launched_at(trace: Trace) -> Longs:
    """When the host launched each span of the device; its own start where nothing tells."""
    device, host = trace.device, trace.host
    calls = np.flatnonzero((host.link >= 0) & (host.kind == RUNTIME))
    if not len(calls):
        calls = np.flatnonzero(host.link >= 0)
    if not len(calls) or not len(device):
        own: Longs = device.start.copy()
        return own
    order = calls[np.argsort(host.link[calls], kind="stable")]
    links, starts = host.link[order], host.start[order]
    place = np.minimum(np.searchsorted(links, device.link), len(links) - 1)
    known = (links[place] == device.link) & (device.link >= 0)
    found: Longs = np.where(known, np.minimum(starts[place], device.start), device.start)
    return found


def host_steps(trace: Trace) -> tuple[Longs, Longs, Longs]:
    """Numbers, starts and ends of the steps by the host's clock; empty where nothing marks them."""
    marks = trace.host.of(MARK, OPERATOR)
    named = {index: int(found[1]) for index, name in enumerate(trace.names) if (found := PROFILER.match(name))}
    if named:
        rows = np.flatnonzero(among(marks.name, named))
        ids = np.array([named[n] for n in marks.name[rows].tolist()], np.int64)
        order = np.argsort(marks.start[rows], kind="stable")
        _, first = np.unique(ids[order], return_index=True)
        rows = rows[order][np.sort(first)]
        return np.array([named[n] for n in marks.name[rows].tolist()], np.int64), marks.start[rows], marks.end[rows]
    return _by_optimizer(trace, marks) or _by_repetition(trace, marks) or _none()


def _none() -> tuple[Longs, Longs, Longs]:
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)


def _by_optimizer(trace: Trace, marks: Spans) -> tuple[Longs, Longs, Longs] | None:
    """From one optimizer step's end to the next one's."""
    chosen = [index for index, name in enumerate(trace.names) if _OPTIMIZER.match(name)]
    rows = np.flatnonzero(among(marks.name, chosen))
    if len(rows) < 2:
        return None
    # Several optimizers step one after another: the most frequent name counts.
    names, counts = np.unique(marks.name[rows], return_counts=True)
    ends = np.sort(marks.end[rows[marks.name[rows] == names[np.argmax(counts)]]])
    return (np.arange(len(ends) - 1), ends[:-1], ends[1:]) if len(ends) >= 2 else None


def _by_repetition(trace: Trace, marks: Spans) -> tuple[Longs, Longs, Longs] | None:
    """An annotation such as `train_step` or `iteration 17` that covers most of the profile again and again."""
    marks = marks.of(MARK)
    if len(marks) < 2:
        return None
    plain = {n: _DIGITS.sub("", trace.names[n]) for n in distinct(marks.name)}
    span = int(marks.end.max() - marks.start.min())
    best: tuple[int, Spans] | None = None
    for text in sorted(set(plain.values())):
        mine = marks.where(among(marks.name, [n for n, t in plain.items() if t == text]))
        length = int((mine.end - mine.start).sum())
        apart = len(mine) >= 2 and bool((mine.start[1:] >= mine.end[:-1]).all())
        if apart and COVERS * span <= length <= span and (best is None or length > best[0]):
            best = length, mine
    return (np.arange(len(best[1])), best[1].start, best[1].end) if best else None


def windows(trace: Trace, launched: Longs, work: Spans) -> Windows:
    """The steps on the clock of what does the work: the device, or the host where there is none.

    On a device a step begins with the first thing that the host launched in it: the host runs ahead.
    """
    ids, start, end = host_steps(trace)
    if not len(ids):
        first = int(work.start.min()) if len(work) else 0
        last = int(work.end.max()) if len(work) else 0
        return Windows(np.zeros(1, np.int64), np.array([first]), np.array([last]), marked=False)
    real = among(trace.device.kind, (COMPUTE, COMMUNICATION, MEMORY))
    if not real.any():
        return Windows(ids, start, np.maximum(np.concatenate((start[1:], end[-1:])), start), marked=True)
    step = np.searchsorted(start, launched, side="right") - 1
    inside = real & (step >= 0) & (launched < end[-1])
    starts, ends = start.copy(), end.copy()
    for index in range(len(ids)):
        rows = inside & (step == index)
        if rows.any():
            starts[index] = trace.device.start[rows].min()
            ends[index] = trace.device.end[rows].max()
    starts = np.maximum.accumulate(starts)
    return Windows(ids, starts, np.maximum(np.concatenate((starts[1:], ends[-1:])), starts), marked=True)
