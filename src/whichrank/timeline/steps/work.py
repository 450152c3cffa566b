"""What counts as work: the device's, or the host's operators where a profile has no device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct

from whichrank.records.profiles.steps import CHECKPOINT, COLLECTOR, HOST, LOADER, SYNCHRONISING
from whichrank.records.profiles.trace import (
    COMMUNICATION,
    COMPUTE,
    MARK,
    MEMORY,
    OPERATOR,
    PYTHON,
    RUNTIME,
    Spans,
    Trace,
)
from whichrank.timeline.steps.intervals import Cover, among, distinct, union

_LOADS = re.compile(
    r"enumerate\(DataLoader\)|DataLoaderIter|data_?loader\b.*(?:next|fetch)|^dataloader|\bget_batch\b", re.IGNORECASE
)
_SAVES = re.compile(
    r"checkpoint(?!_?wrapper|ed|Function|\.py\(\d+\): checkpoint)|torch\.save|\bsave_(?:model|state|pretrained)|"
    r"serialization\.py\(\d+\): save", re.IGNORECASE,
)  # fmt: skip
_COLLECTS = re.compile(
    r"\bPython GC\b|\bgc\.collect|built-in (?:function|method) collect\b|^gc:|garbage", re.IGNORECASE
)
_SYNCS = re.compile(
    r"(?:Device|Stream|Event|Context|Queue)Synchronize|cudaMemcpy$|hipMemcpy$|cuMemcpy\w{0,40}to[HD]_v2$|"
    r"aten::(?:item|_local_scalar_dense|nonzero|is_nonzero)$|EventSync", re.IGNORECASE,
)  # fmt: skip
_NOT_WORK = re.compile(
    r"^(?:autograd::|torch::autograd|c10d::|record_param_comms|torch::distributed|gloo:|mpi:|ucc:|nccl:|ProfilerStep|"
    r"detach$|aten::(?:item|_local_scalar_dense)$)"
)
Flags = np.ndarray[tuple[int], np.dtype[np.int8]]
REASONS = (LOADER, CHECKPOINT, COLLECTOR, SYNCHRONISING, HOST)
"""In the order in which they explain an idle moment."""


class Work(Struct, eq=False, dict=True):
    """Spans of work and communication on one clock, and the covers of each."""

    spans: Spans
    """Compute and memory."""
    calls: Spans
    """Communication."""
    compute: Cover
    communication: Cover
    memory: Cover
    on_device: bool
    why: dict[int, Cover]
    """Where the host was, by reason for idleness."""
    why_spans: Spans
    """The spans behind the reasons but for plain operators; `kind` is the reason."""

    @cached_property
    def exposed(self) -> Cover:
        """Communication with no computation beside it."""
        return self.communication - self.compute

    @cached_property
    def active(self) -> Cover:
        """Computation or communication."""
        return self.compute | self.communication

    @cached_property
    def busy(self) -> Cover:
        """Anything that runs."""
        return self.active | self.memory

    @cached_property
    def moved(self) -> Cover:
        """Memory copies alone."""
        return self.memory - self.active

    @cached_property
    def idle(self) -> dict[int, Cover]:
        """Where nothing runs, by the first reason that explains it."""
        return by_reason(self.why, self.busy)

    @cached_property
    def explained(self) -> Cover:
        """What runs, and the idle moments that have a reason."""
        found = self.busy
        for cover in self.idle.values():
            found = found | cover
        return found


def by_reason(why: Mapping[int, Cover], taken: Cover) -> dict[int, Cover]:
    """Of what is not taken: the moments that each reason is the first one to explain."""
    found = {}
    for reason in REASONS:
        found[reason] = why[reason] - taken
        if reason != REASONS[-1]:
            taken = taken | found[reason]
    return found


def work_of(trace: Trace) -> Work:
    """The work of a profile."""
    device = trace.device.of(COMPUTE, COMMUNICATION, MEMORY)
    flags = _flags(trace)
    reasons = _reasons(trace, flags)
    if len(device):
        calls = device.of(COMMUNICATION)
        spans = device.of(COMPUTE, MEMORY)
    else:
        calls = trace.host.of(COMMUNICATION)
        spans = _operators(trace, reasons[LOADER])
    return Work(
        spans=spans,
        calls=calls,
        compute=_cover(spans, COMPUTE),
        communication=union(calls.start, calls.end),
        memory=_cover(spans, MEMORY),
        on_device=bool(len(device)),
        why=reasons,
        why_spans=_why_spans(trace, flags),
    )


def _cover(spans: Spans, kind: int) -> Cover:
    rows = np.flatnonzero(spans.kind == kind)
    return union(spans.start[rows], spans.end[rows])


def _operators(trace: Trace, loading: Cover) -> Spans:
    """Operators of the host that do work, the outermost of each: what a CPU job computes.

    What only calls others or waits (autograd's engine, c10d) is left out, and so is what the data loader does.
    """
    operators = trace.host.of(OPERATOR)
    named = np.array([not _NOT_WORK.match(name) for name in trace.names], np.bool_)
    keep = named[operators.name] if len(operators) else np.zeros(0, np.bool_)
    keep &= loading.within(operators.start, operators.end) * 2 <= operators.end - operators.start
    found = operators.where(keep)
    found = found.where(np.lexsort((-found.end, found.start, found.lane)))
    outer = np.ones(len(found), np.bool_)
    for lane in distinct(found.lane):
        rows = np.flatnonzero(found.lane == lane)
        outer[rows[1:]] = found.start[rows][1:] >= np.maximum.accumulate(found.end[rows])[:-1]
    found = found.where(outer)
    found = found.where(np.argsort(found.start, kind="stable"))
    found.kind = np.full(len(found), COMPUTE, np.int8)
    return found


def _reasons(trace: Trace, flags: Flags) -> dict[int, Cover]:
    host = trace.host
    found = {}
    named = flags[host.name]
    for reason in (LOADER, CHECKPOINT, COLLECTOR, SYNCHRONISING):
        rows = np.flatnonzero((named == reason) & _may(host, reason))
        found[reason] = union(host.start[rows], host.end[rows])
    busy = np.flatnonzero(among(host.kind, (OPERATOR, RUNTIME)))
    found[HOST] = union(host.start[busy], host.end[busy])
    return found


def _why_spans(trace: Trace, flags: Flags) -> Spans:
    host = trace.host
    named = flags[host.name]
    rows = (named >= 0) & np.where(
        named == SYNCHRONISING, host.kind == RUNTIME, among(host.kind, (MARK, OPERATOR, PYTHON))
    )
    spans = host.where(rows)
    spans.kind = flags[spans.name]
    return spans


def _may(host: Spans, reason: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    kinds = (RUNTIME, OPERATOR) if reason == SYNCHRONISING else (MARK, OPERATOR, PYTHON)
    return among(host.kind, kinds)


def _flags(trace: Trace) -> Flags:
    """What the host's spans of each name are about."""
    flags = np.full(max(1, len(trace.names)), -1, np.int8)
    for index in distinct(trace.host.name):
        name = trace.names[index][:160]
        if _LOADS.search(name):
            flags[index] = LOADER
        elif _SAVES.search(name):
            flags[index] = CHECKPOINT
        elif _COLLECTS.search(name):
            flags[index] = COLLECTOR
        elif _SYNCS.search(name):
            flags[index] = SYNCHRONISING
    return flags
