"""Overlap, idle and compute shares by the rule of Meta's HolisticTraceAnalysis (0.5.0), for comparison with it.

Its rule (hta/common/trace.py, analyzers/breakdown_analysis.py, communication_analysis.py): of a profile with two or
more marked steps, what was launched before the last one began; from the first start to the last end; kinds by the
expressions below. Its rounding of times to microseconds is left out: these are exact.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from whichrank.records.profiles.trace import MARK, Flags, Longs, Trace
from whichrank.timeline.steps.intervals import among, distinct, union

_COMMUNICATION = re.compile(r"^nccl.*Kernel")
_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_NOT_COMPUTE = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


class Shares(Struct, frozen=True):
    """Percentages; None where there is nothing to divide by."""

    compute: float | None = None
    idle: float | None = None
    overlap: float | None = None


def shares(trace: Trace) -> Shares:
    """The three numbers for one rank."""
    device = trace.device
    rows = _on_streams(trace)
    if trace.profiler_steps > 1:
        rows &= _before_last_step(trace)
    chosen = np.flatnonzero(rows)
    names, start, end = device.name[chosen], device.start[chosen], device.end[chosen]
    if not len(start):
        return Shares()
    kinds = np.zeros(len(trace.names), np.int8)
    for index in distinct(names):
        kinds[index] = _kind(trace.names[index])
    kinds = kinds[names]
    busy = union(start, end)
    span = int(end.max() - start.min())
    if span <= 0:
        return Shares()
    compute = union(start[kinds == 2], end[kinds == 2])
    communication = union(start[kinds == 1], end[kinds == 1])
    return Shares(
        compute=100 * compute.total / span,
        idle=100 * (span - busy.total) / span,
        overlap=100 * (communication & compute).total / communication.total if communication.total else None,
    )


def _on_streams(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """What names its stream is the device's; annotations mostly don't. All of it where nothing does."""
    numbered = np.array([lane.numbered for lane in trace.lanes], np.bool_)
    found = numbered[trace.device.lane] if len(trace.device) else np.zeros(0, np.bool_)
    return found if found.any() else trace.device.kind != MARK


def _before_last_step(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Spans of the device that a call before the last step's mark launched."""
    device, host = trace.device, trace.host
    marked = [index for index, name in enumerate(trace.names) if "ProfilerStep" in name]
    # An annotation on the device has no stream of its own there: it counts as the host's.
    starts = np.concatenate((host.start[among(host.name, marked)], device.start[among(device.name, marked)]))
    if not len(starts):
        return np.ones(len(device), np.bool_)
    last = starts.max()
    calls = host.link[(host.link >= 0) & (host.start < last)]
    return np.where(device.link >= 0, _linked(device.link, calls), device.start < last)


def _linked(links: Longs, calls: Longs) -> Flags:
    """Which of the links are those of calls."""
    if not len(calls):
        return np.zeros(len(links), np.bool_)
    calls = np.sort(calls)
    found: Flags = calls[np.minimum(np.searchsorted(calls, links), len(calls) - 1)] == links
    return found


def _kind(name: str) -> int:
    if _COMMUNICATION.match(name):
        return 1
    return 0 if _MEMORY.match(name) or _NOT_COMPUTE.match(name) else 2
