"""All profiles of a job in one file with aligned clocks; the profiles are read once more, one after another."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from whichrank.evidence.intake import Given, collect
from whichrank.flows.trace.analyse import reader_of
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.model.step_report import RankShares, StepReport
from whichrank.records.profiles.trace import COMMUNICATION, COMPUTE, MARK, MEMORY, OPERATOR, Spans, Trace
from whichrank.report.steps.perfetto import Process, Slice, Track, render

MOST_SLICES = 1_500_000
"""Of all ranks together: what a browser can show. Of each rank the longest are kept."""
CATEGORIES = {
    COMPUTE: "kernel",
    COMMUNICATION: "communication",
    MEMORY: "memory",
    MARK: "annotation",
    OPERATOR: "operator",
}


def merge(
    paths: Sequence[Given], report: StepReport, target: Path, *, progress: Callable[[str, int, int], None] | None = None
) -> None:
    """Write the merged file, whole or not at all."""
    wanted: dict[str, list[tuple[int, RankShares]]] = {}
    for number, one in enumerate(report.ranks):
        wanted.setdefault(one.file, []).append((number, one))
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with collect(paths) as intake:
            items = [item for item in intake.items if item.label in wanted]
            with gzip.open(draft, "wb", 4) if target.suffix == ".gz" else draft.open("wb") as out:
                for piece in render(_processes(items, wanted, progress)):
                    out.write(piece)
        draft.replace(target)
    except OSError as error:
        raise UsageError(
            f"can't write {target}: {error.strerror}", "Give --perfetto a file in a folder you may write to."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _processes(
    items: Sequence[Item],
    wanted: dict[str, list[tuple[int, RankShares]]],
    progress: Callable[[str, int, int], None] | None,
) -> Iterator[Process]:
    most = MOST_SLICES // max(1, len(items))
    origin: int | None = None
    for done, item in enumerate(items):
        reader = reader_of(item)
        try:
            records = reader.read(item).records if reader is not None else []
        except UnreadableError:
            continue
        traces = [record for record in records if isinstance(record, Trace)]
        chosen = wanted[item.label]  # a file may hold several ranks; the report has them in the same order
        for trace, (number, shares) in zip(traces, chosen, strict=False):
            shift = trace.base_ns - round(shares.clock_offset_us * 1e3)
            spans = _chosen(trace, most)
            if origin is None:
                origin = int(spans.start.min()) + shift if len(spans) else shift
            yield _process(trace, spans, number, shares, shift - origin)
        if progress is not None:
            progress("merging", done + 1, len(items))


def _chosen(trace: Trace, most: int) -> Spans:
    """The device's work, annotations, collectives, and operators that no other calls; of too many the longest."""
    device, host = trace.device.of(COMPUTE, COMMUNICATION, MEMORY), trace.host.of(MARK, OPERATOR, COMMUNICATION)
    operators = host.kind == OPERATOR
    outer = np.ones(len(host), np.bool_)
    for lane in np.unique(host.lane[operators]):
        rows = np.flatnonzero(operators & (host.lane == lane))
        ends = np.maximum.accumulate(host.end[rows])
        outer[rows[1:]] = host.start[rows][1:] >= ends[:-1]
    host = host.where(outer)
    joined = Spans(
        *(
            np.concatenate((getattr(device, c), getattr(host, c)))
            for c in ("start", "end", "name", "lane", "kind", "link", "comm")
        )
    )
    if len(joined) > most:
        length = joined.end - joined.start
        joined = joined.where(np.argpartition(-length, most)[:most])
    # Of those that begin together the longest first: Perfetto drops one that ends after what it seems to be within.
    return joined.where(np.lexsort((joined.start - joined.end, joined.start)))


def _process(trace: Trace, spans: Spans, number: int, shares: RankShares, shift: int) -> Process:
    lanes = [int(lane) for lane in np.unique(spans.lane)]
    # From 1 on: to Perfetto thread 0 of all processes is one, the idle thread.
    tracks = [Track(lane + 1, _track(trace, lane)) for lane in lanes]
    name = f"rank {shares.rank}" if shares.rank is not None else shares.file.rsplit("/", 1)[-1]
    label = shares.host or trace.accelerator or trace.source

    def slices() -> Iterator[Slice]:
        columns = (spans.lane, spans.name, spans.kind, spans.start + shift, spans.end - spans.start)
        for lane, what, kind, start, length in zip(*(column.tolist() for column in columns), strict=True):
            yield Slice(lane + 1, trace.names[what], CATEGORIES[kind], start / 1e3, length / 1e3)

    return Process(number, name, label, tracks, slices())


def _track(trace: Trace, lane: int) -> str:
    found = trace.lanes[lane]
    return f"{found.process} {found.thread}" if found.device else found.thread
