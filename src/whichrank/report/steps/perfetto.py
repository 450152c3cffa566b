"""All ranks on one timeline, for ui.perfetto.dev or chrome://tracing: one process per rank, clocks aligned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from whichrank import __version__


class Track(NamedTuple):
    """One stream or thread."""

    number: int
    name: str


class Slice(NamedTuple):
    """One span, in microseconds on the common clock."""

    track: int
    name: str
    category: str
    start_us: float
    duration_us: float


class Process(NamedTuple):
    """One rank."""

    number: int
    name: str
    label: str
    tracks: Iterable[Track]
    slices: Iterable[Slice]


def render(processes: Iterable[Process]) -> Iterator[bytes]:
    """The file, piece by piece; never more than one rank is held."""
    encode = msgspec.json.Encoder().encode
    yield (
        b'{"displayTimeUnit":"ms","otherData":{"written by":'
        + encode(f"whichrank {__version__}")
        + b'},"traceEvents":[\n'
    )
    first = True
    for process in processes:
        lines = [encode(event) for event in _titles(process)]
        for piece in process.slices:
            lines.append(encode({
                "ph": "X", "pid": process.number, "tid": piece.track, "name": piece.name, "cat": piece.category,
                "ts": piece.start_us, "dur": piece.duration_us,
            }))  # fmt: skip
            if len(lines) >= 10_000:
                yield (b"" if first else b",\n") + b",\n".join(lines)
                lines, first = [], False
        if lines:
            yield (b"" if first else b",\n") + b",\n".join(lines)
            first = False
    yield b"\n]}\n"


def _titles(process: Process) -> Iterator[dict[str, object]]:
    base = {"ph": "M", "pid": process.number, "ts": 0}
    yield {**base, "name": "process_name", "args": {"name": process.name}}
    yield {**base, "name": "process_labels", "args": {"labels": process.label}}
    yield {**base, "name": "process_sort_index", "args": {"sort_index": process.number}}
    for track in process.tracks:
        yield {**base, "tid": track.number, "name": "thread_name", "args": {"name": track.name}}
        yield {**base, "tid": track.number, "name": "thread_sort_index", "args": {"sort_index": track.number}}
