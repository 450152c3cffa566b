"""The entries that the decoder in Python has read, one by one or by comparison, as columns."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from whichrank.evidence.pickle.repeats import Layout, Number, Shape, Site
from whichrank.evidence.readers.flight_recorder.calls import INT64, Calls, Shared, integer
from whichrank.evidence.readers.flight_recorder.columns import (
    COLUMN,
    DURATION,
    MARKER,
    Columns,
    Ints,
    arranged,
    kinds_of,
)
from whichrank.model.errors import UnreadableError

SHAPE = Shape(MARKER, frozenset(COLUMN) | {DURATION}, unused=frozenset({"op_id"}), floats=frozenset({DURATION}))
"""What repeats in a dump, for the decoder."""
_SECONDS = 8.0  # CPU time for one dump


class _Table:
    """One line per decoded entry; the line of a site stands for all its rows."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.shared: list[Shared] = []
        self.numbers: list[list[int]] = []
        self.durations: list[float] = []
        self.has_frames = False
        self.unnumbered = False
        self._known: dict[int, Shared] = {}

    def line(self, entry: dict[Any, Any]) -> int:
        shared = self._known.get(id(entry))
        if shared is None:
            shared = self._known[id(entry)] = self.calls.shared(entry)
        self.shared.append(shared)
        numbers = [0] * len(COLUMN)
        for key, column in COLUMN.items():
            if key in entry:
                numbers[column] = integer(entry[key])
        self.numbers.append(numbers)
        duration = entry.get(DURATION)
        self.durations.append(float(integer(duration)) if type(duration) is int else _real(duration))
        self.has_frames = self.has_frames or "frames" in entry
        self.unnumbered = self.unnumbered or "record_id" not in entry
        return len(self.shared) - 1


def columns(entries: list[Any], unfinished: list[Any]) -> tuple[Columns, Calls]:
    """Line the entries up; what is no entry, or was cut off while it was written, is dropped."""
    table, lines, dropped = _Table(), [], 0
    sites: dict[Site, int] = {}
    not_wanted = {id(container) for container in unfinished}
    deadline = time.thread_time() + _SECONDS
    for entry in entries:
        if type(entry) is Site:
            line = sites.get(entry)
            if line is None:
                line = sites[entry] = table.line(entry.record)
            lines.append(line)
        elif type(entry) is dict and SHAPE.marker in entry and id(entry) not in not_wanted:
            lines.append(table.line(entry))
            not_wanted.add(id(entry))  # one entry listed twice is none of torch's doing
            if len(lines) % 1024 == 0 and time.thread_time() > deadline:
                raise UnreadableError(f"the dump takes more than {_SECONDS:g} s to read")
        else:
            dropped += 1
    return _lined_up(table, np.array(lines, dtype=np.int64), sites, dropped), table.calls


def _lined_up(table: _Table, lines: Ints, sites: dict[Site, int], dropped: int) -> Columns:
    numbers = np.array(table.numbers, dtype=np.int64).reshape(-1, len(COLUMN)).T[:, lines]
    durations = np.array(table.durations, dtype=np.float64)[lines]
    _fill(numbers, durations, lines, sites)
    return arranged(kinds_of(table.shared, lines), numbers, durations, table.has_frames, table.unnumbered, dropped)


def _fill(numbers: Ints, durations: npt.NDArray[np.float64], lines: Ints, sites: dict[Site, int]) -> None:
    """Put the changing numbers of all rows in their places, layout by layout."""
    order = np.argsort(lines, kind="stable")
    lines = lines[order]
    by_layout: dict[Layout, list[Site]] = {}
    for site in sites:
        by_layout.setdefault(site.layout, []).append(site)
    for layout, members in by_layout.items():
        rows = b"".join([row for site in members for row in site.rows])
        raw = np.frombuffer(rows, dtype=_dtype(layout.size, layout.numbers))
        begins = np.searchsorted(lines, [sites[site] for site in members], "left")
        ends = np.searchsorted(lines, [sites[site] for site in members], "right")
        if [len(site.rows) for site in members] != (ends - begins).tolist():
            raise UnreadableError("the dump holds the same entry more than once")
        places = np.concatenate([order[begin:end] for begin, end in zip(begins, ends, strict=True)])
        for key, kind, _ in layout.numbers:
            if key == DURATION:
                durations[places] = raw[key]
            elif kind == "<i8":  # the lowest number is none, as in `integer`
                numbers[COLUMN[key]][places] = np.where(raw[key] < -INT64, 0, raw[key])
            elif kind != ">f8":
                numbers[COLUMN[key]][places] = raw[key]


@lru_cache(maxsize=256)
def _dtype(size: int, numbers: tuple[Number, ...]) -> np.dtype[np.void]:
    return np.dtype(
        {
            "names": [number.key for number in numbers],
            "formats": [number.kind for number in numbers],
            "offsets": [number.offset for number in numbers],
            "itemsize": size,
        }
    )


def _real(value: object) -> float:
    return value if type(value) is float else float("nan")
