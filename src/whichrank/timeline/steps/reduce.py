"""A profile reduced to what is compared across ranks: kilobytes instead of megabytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from whichrank.facts.collective_names import operation
from whichrank.records.profiles.steps import IDLE_REASONS, OTHER, Calls, RankSteps
from whichrank.records.profiles.trace import Collective, Longs, Spans, Trace
from whichrank.timeline.steps import hta
from whichrank.timeline.steps.chain import link_up
from whichrank.timeline.steps.drawing import draw
from whichrank.timeline.steps.intervals import among, distinct
from whichrank.timeline.steps.signs import signs_of
from whichrank.timeline.steps.windows import Windows, launched_at, windows
from whichrank.timeline.steps.work import Work, work_of

NOTHING = Collective("")
ACCUMULATES = "torch::autograd::AccumulateGrad"
"""Autograd's name for the last operator of a gradient, after which DDP hears that it is ready."""


def reduced(trace: Trace) -> RankSteps:
    """One rank's steps, collectives and chain."""
    launched = launched_at(trace)
    work = work_of(trace)
    every = _joined(work)
    steps = windows(trace, launched, every)
    bounds = int(steps.start[0]), int(steps.end[-1])
    calls, collectives = _calls(trace, work, steps, launched)
    links, tail = link_up(trace, work, launched, bounds, calls.start)
    names, used = _names(trace, links.top, calls.name)
    links.top, calls.name = used[links.top], used[calls.name]
    compute = work.compute.within(steps.start, steps.end)
    communication = work.communication.within(steps.start, steps.end)
    exposed = work.exposed.within(steps.start, steps.end)
    memory = work.moved.within(steps.start, steps.end)
    shares = hta.shares(trace)
    return RankSteps(
        source=trace.source,
        reader=trace.reader,
        rank=trace.rank,
        world=trace.world,
        backend=trace.backend,
        host_name=trace.host_name,
        accelerator=trace.accelerator,
        base_ns=trace.base_ns,
        events=trace.events,
        on_device=work.on_device,
        cut=trace.cut,
        marked=steps.marked,
        ids=steps.ids,
        start=steps.start,
        end=steps.end,
        compute=compute,
        communication=communication,
        exposed=exposed,
        memory=memory,
        idle=_idle(work, steps),
        hta=(shares.compute, shares.idle, shares.overlap),
        calls=calls,
        collectives=collectives,
        links=links,
        tail=tail,
        finish=bounds[1],
        names=names,
        map=draw(work, *bounds),
        signs=signs_of(trace, launched, steps),
        collectives_only=trace.collectives_only,
        ends_known=trace.ends_known,
        ends_early=trace.ends_early,
        ddp_buckets=trace.ddp_buckets,
        gradients=_gradients(trace) if not work.on_device else np.empty(0, np.int64),
    )


def _gradients(trace: Trace) -> Longs:
    """When each gradient was accumulated."""
    chosen = [index for index, name in enumerate(trace.names) if name == ACCUMULATES]
    return np.sort(trace.host.end[among(trace.host.name, chosen)])


def _joined(work: Work) -> Spans:
    return Spans(np.concatenate((work.spans.start, work.calls.start)), np.concatenate((work.spans.end, work.calls.end)))


def _idle(work: Work, steps: Windows) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Idle time of each step by reason; together with the work it adds up to the step."""
    found = np.zeros((len(steps.ids), len(IDLE_REASONS)), np.int64)
    explained = work.busy.within(steps.start, steps.end)
    for reason, cover in work.idle.items():
        found[:, reason] = cover.within(steps.start, steps.end)
        explained = explained + found[:, reason]
    found[:, OTHER] = steps.end - steps.start - explained
    return found


def _calls(trace: Trace, work: Work, steps: Windows, launched: Longs) -> tuple[Calls, list[Collective]]:
    """Collectives with what is known of their arguments, by the kernel itself or by the call that launched it."""
    spans = work.calls
    known: dict[Collective, int] = {}
    step = np.searchsorted(steps.start, spans.start, side="right") - 1
    step = np.where(spans.start < steps.end[-1], step, -1)
    told = _sized(_told(trace, spans, launched), step.tolist(), trace.step_collectives)
    what = np.array([known.setdefault(collective, len(known)) for collective in told], np.int32)
    return Calls(spans.start, spans.end, what, spans.name, spans.lane, step.astype(np.int32)), list(known)


def _sized(calls: list[Collective], step: Sequence[int], one_step: Sequence[Collective]) -> list[Collective]:
    """Collectives with the sizes of those of another step, where a step makes as many of the kind."""
    sizes: dict[str, list[int | None]] = defaultdict(list)
    for one in one_step:
        sizes[one.op].append(one.sent)
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, (call, number) in enumerate(zip(calls, step, strict=True)):
        if call.sent is None and call.received is None and call.op in sizes:
            rows[call.op, number].append(row)
    for (op, _), places in rows.items():
        if len(places) == len(sizes[op]):
            for row, size in zip(places, sizes[op], strict=True):
                calls[row] = calls[row]._replace(sent=size)
    return calls


def _launch_of(trace: Trace, spans: Spans, launched: Longs) -> Longs:
    """When each of these spans of the device was launched."""
    device = trace.device
    first = np.searchsorted(device.start, spans.start)
    found: Longs = spans.start.copy()
    open_ = np.ones(len(spans), np.bool_)
    for ahead in range(8):  # several may begin in the same nanosecond
        index = np.minimum(first + ahead, len(device) - 1)
        here = open_ & (device.start[index] == spans.start) & (device.link[index] == spans.link)
        found[here] = launched[index[here]]
        open_ &= ~here & (device.start[index] == spans.start)
        if not open_.any():
            break
    return found


def _told(trace: Trace, spans: Spans, launched: Longs) -> list[Collective]:
    """The arguments of each; where the kernel carries none, those of the host's annotation around its launch."""
    noted = trace.host.where(trace.host.comm >= 0)
    begun = _launch_of(trace, spans, launched) if len(trace.device) else spans.start
    answer = []
    known: dict[tuple[Collective | None, int], Collective] = {}
    last = np.searchsorted(noted.start, begun, side="right")
    rows = zip(spans.comm.tolist(), spans.name.tolist(), last.tolist(), begun.tolist(), strict=True)
    for own, name, before, moment in rows:
        told = trace.collectives[own] if own >= 0 else _around(trace, noted, before, moment)
        found = known.get((told, name))
        if found is None:
            found = (
                told if told is not None and told.op else (told or NOTHING)._replace(op=operation(trace.names[name]))
            )
            found = known[told, name] = _placed(found, trace.only_group)
        answer.append(found)
    return answer


def _placed(found: Collective, only: Collective | None) -> Collective:
    """A collective that names no group belongs to the only one, where there is only one."""
    if only is None or found.group or found.size is not None or found.ranks is not None:
        return found
    return found._replace(group=only.group, desc=only.desc, size=only.size, ranks=only.ranks)


def _around(trace: Trace, noted: Spans, last: int, moment: int) -> Collective | None:
    """The innermost annotation of a collective that encloses the moment; the one that says most of them.

    `last` is how many of the annotations begin before the moment.
    """
    best: Collective | None = None
    for index in range(last - 1, max(-1, last - 9), -1):
        if noted.end[index] >= moment:
            found = trace.collectives[noted.comm[index]]
            if best is None or (found.size is not None and best.size is None):
                best = found
    return best


def _names(
    trace: Trace,
    top: np.ndarray[tuple[int, int], np.dtype[np.int32]],
    calls: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Only the names that are still used, and where each old number went (-1 stays -1)."""
    used = np.concatenate((top.reshape(-1), calls))
    kept = np.array(distinct(used[used >= 0]), np.int64)
    moved = np.full(len(trace.names) + 1, -1, np.int32)
    moved[kept] = np.arange(len(kept))
    return [trace.names[index] for index in kept.tolist()], moved
