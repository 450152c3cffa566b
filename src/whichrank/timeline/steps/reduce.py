"""A profile reduced to what is compared across ranks: kilobytes instead of megabytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichrank.facts.collective_names import operation
from whichrank.records.steps import IDLE_REASONS, OTHER, Calls, RankSteps
from whichrank.records.trace import Collective, Longs, Spans, Trace
from whichrank.timeline.steps import hta
from whichrank.timeline.steps.chain import link_up
from whichrank.timeline.steps.drawing import draw
from whichrank.timeline.steps.intervals import distinct
from whichrank.timeline.steps.signs import signs_of
from whichrank.timeline.steps.windows import Windows, launched_at, windows
from whichrank.timeline.steps.work import REASONS, Work, work_of


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
    exposed = (work.communication - work.compute).within(steps.start, steps.end)
    busy = work.compute | work.communication
    memory = (work.memory - busy).within(steps.start, steps.end)
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
    )


def _joined(work: Work) -> Spans:
    return Spans(np.concatenate((work.spans.start, work.calls.start)), np.concatenate((work.spans.end, work.calls.end)))


def _idle(work: Work, steps: Windows) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Idle time of each step by reason; together with the work it adds up to the step."""
    found = np.zeros((len(steps.ids), len(IDLE_REASONS)), np.int64)
    taken = work.compute | work.communication | work.memory
    for reason in REASONS:
        mine = work.why[reason] - taken
        found[:, reason] = mine.within(steps.start, steps.end)
        taken = taken | mine
    found[:, OTHER] = steps.end - steps.start - taken.within(steps.start, steps.end)
    return found


def _calls(trace: Trace, work: Work, steps: Windows, launched: Longs) -> tuple[Calls, list[Collective]]:
    """Collectives with what is known of their arguments, by the kernel itself or by the call that launched it."""
    spans = work.calls
    known: dict[Collective, int] = {}
    told = _told(trace, spans, launched)
    what = np.array([known.setdefault(collective, len(known)) for collective in told], np.int32)
    step = np.searchsorted(steps.start, spans.start, side="right") - 1
    step = np.where(spans.start < steps.end[-1], step, -1).astype(np.int32)
    return Calls(spans.start, spans.end, what, spans.name, spans.lane, step.astype(np.int32)), list(known)


def _launch_of(trace: Trace, spans: Spans, launched: Longs) -> Longs:
    """When each of these spans of the device was launched."""
    order = np.argsort(trace.device.start, kind="stable")
    place = np.searchsorted(trace.device.start[order], spans.start)
    found: Longs = spans.start.copy()
    for row, first in enumerate(place.tolist()):
        for candidate in range(first, min(first + 8, len(order))):
            index = order[candidate]
            if trace.device.link[index] == spans.link[row] and trace.device.start[index] == spans.start[row]:
                found[row] = launched[index]
                break
    return found


def _told(trace: Trace, spans: Spans, launched: Longs) -> list[Collective]:
    """The arguments of each; where the kernel carries none, those of the host's annotation around its launch."""
    noted = trace.host.where(trace.host.comm >= 0)
    begun = _launch_of(trace, spans, launched) if len(trace.device) else spans.start
    answer = []
    for row, own in enumerate(spans.comm.tolist()):
        name = trace.names[spans.name[row]]
        found = trace.collectives[own] if own >= 0 else _around(trace, noted, int(begun[row]))
        if found is None:
            found = Collective(operation(name))
        elif not found.op:
            found = replace(found, op=operation(name))
        answer.append(_placed(found, trace.only_group))
    return answer


def _placed(found: Collective, only: Collective | None) -> Collective:
    """A collective that names no group belongs to the only one, where there is only one."""
    if only is None or found.group or found.size is not None or found.ranks is not None:
        return found
    return replace(found, group=only.group, desc=only.desc, size=only.size, ranks=only.ranks)


def _around(trace: Trace, noted: Spans, moment: int) -> Collective | None:
    """The innermost annotation of a collective that encloses the moment; the one that says most of them."""
    last = int(np.searchsorted(noted.start, moment, side="right"))
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
