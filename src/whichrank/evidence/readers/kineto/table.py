"""Spans of a trace as columns, collected batch by batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from whichrank.evidence.readers.kineto import kinds, scan
from whichrank.evidence.readers.kineto.collectives import Arguments, described, noted
from whichrank.evidence.readers.kineto.json_values import json_value
from whichrank.records.profiles.trace import COMMUNICATION, MARK, OPERATOR, PYTHON, Collective, Lane, Spans

if TYPE_CHECKING:
    from decimal import Decimal

MOST_SPANS = 12_000_000
"""Of one file; what is left is the beginning of the trace."""
MOST_NAMES = 1 << 20
LONGEST_NAME = 512
_MOST_SAID = 1 << 12
SHORT_NS = 20_000
"""Calls of the driver that neither launch nor wait are passed over when they are shorter: there are many of them."""
TITLES = ("process_name", "thread_name")
_DURATION, _CATEGORY, _PLACE = attrgetter("dur"), attrgetter("cat"), attrgetter("pid", "tid")
_STREAM, _CORRELATION = attrgetter("stream"), attrgetter("correlation")
_EXACT = re.compile(rb'"ts"\s*:\s*\d{12,}\.\d')
_COLUMNS = (np.int64, np.int64, np.int32, np.int32, np.int32, np.int64, np.int64)
Place = int | str | float | None


def exact_times(first: bytes) -> bool:
    """Whether a float would lose nanoseconds: the first bytes of the file tell."""
    return bool(_EXACT.search(first))


class _Numbers(dict[Any, int]):
    """Things numbered in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Names(_Numbers):
    """Names of spans, and the numbers of those that may carry a collective's arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.telling: list[int] = []

    def __missing__(self, key: str) -> int:
        if key is None:
            raise TypeError("a span without a name")
        if len(self) > MOST_NAMES:
            key = "(one of too many names)"
            if key in self:
                return self[key]
        number = super().__missing__(key)
        if kinds.may_tell(key):
            self.telling.append(number)
        return number


class _Calls(dict[Any, bool]):
    """Whether calls of the driver by this name launch something or wait for something."""

    def __missing__(self, key: Any) -> bool:
        self[key] = useful = kinds.launches_or_waits(key or "")
        return useful


class Table(Struct, dict=True):
    """Spans collected so far."""

    names: _Names = field(default_factory=_Names)
    categories: _Numbers = field(default_factory=_Numbers)
    lanes: _Numbers = field(default_factory=_Numbers)
    titles: dict[tuple[str, Place, Place], str] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    columns: list[tuple[np.ndarray[Any, Any], ...]] = field(default_factory=list)
    count: int = 0
    events: int = 0
    odd: int = 0
    calls: _Calls = field(default_factory=_Calls)
    exact: bool = False
    """Whether times need more than a float."""
    _known: dict[Any, int] = field(default_factory=dict)
    _said: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, batch: Any) -> None:
        """The spans of one batch, as the decoder gave it."""
        self.events += len(batch)
        if isinstance(batch, scan.Scanned):
            self._take(batch)
        else:
            self._add(batch)

    def _add(self, batch: list[Any]) -> None:
        from whichrank.evidence.readers.kineto import events

        calls, kind = self.calls, events.ExactSpan if self.exact else events.Span
        spans = [
            event
            for event in batch
            if event.__class__ is kind
            and (event.cat != "cuda_runtime" or calls[event.name] or round((event.dur or 0) * 1000) > SHORT_NS)
        ]
        if len(spans) < len(batch):
            for event in batch:
                if event.__class__ is events.Title and event.args is not None:
                    self._title(event.name, event.pid, event.tid, event.args.name)
        if self.count >= MOST_SPANS or not spans:
            return
        names = [e.name for e in spans]
        try:
            start = _nanoseconds([e.ts for e in spans])
            length = np.fromiter(map(_DURATION, spans), np.float64, len(spans))
            name = np.fromiter(map(self.names.__getitem__, names), np.int32, len(spans))
            if not np.isfinite(length).all():
                raise TypeError("a span without a duration")
        except TypeError:
            whole = [e for e in spans if e.name is not None and _finite(e.ts) and _finite(e.dur)]
            self.odd += len(spans) - len(whole)
            self._add(whole)
            return
        length = np.clip(np.rint(length * 1000), 0, 2**60)
        args = [e.args or events.NO_ARGS for e in spans]
        comm = np.full(len(name), -1, np.int32)
        telling = set(self.names.telling)
        for row, arg in enumerate(args):
            if arg.collective is not None or (name[row] in telling and events.tells(arg)):
                comm[row] = self._comm(described(names[row] or "", events.arguments(arg)))
        self.columns.append(
            (
                start,
                start + length.astype(np.int64),
                name,
                np.fromiter(map(self.lanes.__getitem__, map(_PLACE, spans)), np.int32, len(spans)),
                np.fromiter(map(self.categories.__getitem__, map(_CATEGORY, spans)), np.int32, len(spans)),
                _whole(_STREAM, args),
                _whole(_CORRELATION, args),
                comm,
            )
        )
        self.count += len(spans)

    def _noted(self, name: str, args: Arguments) -> int:
        """The number of the collective that these arguments describe: steps repeat them."""
        key = name, repr(args)
        number = self._said.get(key)
        if number is None:
            number = self._comm(described(name, args))
            if len(self._said) < _MOST_SAID:
                self._said[key] = number
        return number

    def _comm(self, found: Collective) -> int:
        known = self._known.setdefault(found, len(self.collectives))
        if known == len(self.collectives):
            self.collectives.append(found)
        return known

    def scanner(self) -> scan.Fast | None:
        """How to read the usual batch in C."""
        return scan.scanner(exact=self.exact, number=self.number)

    def decode(self, data: bytes) -> list[Any]:
        """Any batch, in Python."""
        return self._decoder(data)

    @cached_property
    def _decoder(self) -> Callable[[bytes], list[Any]]:
        from whichrank.evidence.readers.kineto import events

        return events.decoder(events.ExactSpan if self.exact else events.Span)

    def number(self, what: int, first: bytes, second: bytes) -> int:
        """The number of a text that the scanner found, as it stands in the file."""
        if what == scan.LANE:
            return self.lanes[json_value(first), json_value(second)]
        if what == scan.CATEGORY and second:  # the event has no category
            return self.categories[None]
        text: str = json_value(b'"' + first + b'"') if b"\\" in first else first.decode()
        if what == scan.CATEGORY:
            return self.categories[text]
        if what == scan.USEFUL:
            return int(self.calls[text])
        return self.names[text] | (scan.TELLING if kinds.may_tell(text) else 0)

    def _take(self, batch: scan.Scanned) -> None:
        """Columns that the scanner made already."""
        for text in batch.titles:
            title = json_value(text)
            self._title(title.get("name"), title.get("pid"), title.get("tid"), (title.get("args") or {}).get("name"))
        if self.count >= MOST_SPANS or not batch.columns[0]:
            return
        start, end, name, lane, category, stream, link = (
            np.frombuffer(column, kind) for column, kind in zip(batch.columns, _COLUMNS, strict=True)
        )
        comm = np.full(len(start), -1, np.int32)
        names = list(self.names) if batch.collectives else []
        for row, text in batch.collectives:
            comm[row] = self._noted(names[name[row]], noted(json_value(text)))
        self.columns.append((start, end, name, lane, category, stream, link, comm))
        self.count += len(start)

    def _title(self, name: Any, pid: Place, tid: Place, text: Any) -> None:
        if name in TITLES and isinstance(text, str) and len(self.titles) < 1 << 16:
            self.titles[name, pid, tid] = text

    def finish(self) -> tuple[Spans, Spans, list[str], list[Lane]]:
        """What ran on devices and what on the host, in order of time."""
        if not self.columns:
            return Spans(), Spans(), [], []
        parts = [np.concatenate(column) for column in zip(*self.columns, strict=True)]
        self.columns.clear()
        start, end, name, lane, category, stream, link, comm = parts
        names = list(self.names)
        lanes, by_title = self._lanes()
        cats = [(cat or "").lower() for cat in self.categories]
        on_device = np.array([kinds.DEVICE.get(cat, -1) for cat in cats], np.int8)[category]
        on_host = np.array([kinds.HOST.get(cat, -1) for cat in cats], np.int8)[category]
        unknown = (on_device < 0) & (on_host < 0)
        dropped = np.array([cat in kinds.IGNORED for cat in cats], np.bool_)[category]
        device = (on_device >= 0) | (unknown & ((stream >= 0) | by_title[lane]))
        device &= ~dropped
        host = ~device & ~dropped
        on_device = np.where(on_device < 0, 0, on_device).astype(np.int8)
        on_host = np.where(on_host < 0, OPERATOR, on_host).astype(np.int8)
        rows = np.argsort(start, kind="stable")
        device, host = rows[device[rows]], rows[host[rows]]

        def spans(which: Any, kind: Any, named: Callable[[str, int], int]) -> Spans:
            kind = _by_name(names, name[which], kind[which], named)
            return Spans(start[which], end[which], name[which], lane[which], kind, link[which], comm[which])

        on_devices = spans(device, on_device, kinds.device_kind)
        noted = (on_devices.comm >= 0) & (on_devices.kind != MARK)
        on_devices.kind[noted] = COMMUNICATION
        _streams(lanes, lane[device], stream[device], on_devices)
        shown = [text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…" for text in names]
        return on_devices, spans(host, on_host, kinds.host_kind), shown, lanes

    def _lanes(self) -> tuple[list[Lane], Any]:
        titles = self.titles
        lanes, devices = [], []
        for pid, tid in self.lanes:
            process = titles.get(("process_name", pid, None)) or titles.get(("process_name", pid, 0)) or str(pid)
            thread = titles.get(("thread_name", pid, tid)) or str(tid)
            device = kinds.device_lane(process, thread)
            lanes.append(Lane(process, thread, device))
            devices.append(device)
        return lanes, np.array(devices, np.bool_)


def _finite(value: Any) -> bool:
    return value is not None and abs(value) < float("inf")


def _streams(lanes: list[Lane], lane: Any, stream: Any, spans: Spans) -> None:
    """Spans of one lane on several streams get a lane for each stream."""
    streams, which = _places(np.maximum(stream + 1, 0))
    unique, place = _places(lane.astype(np.int64) * max(1, len(streams)) + which)
    spans.lane = (place + len(lanes)).astype(np.int32)
    for key in unique.tolist():
        old, number = key // len(streams), int(streams[key % len(streams)]) - 1
        text = f"stream {number}" if number >= 0 else lanes[old].thread
        lanes.append(Lane(lanes[old].process, text, True, number >= 0))


_TABLE = 1 << 24
"""Up to this a table of flags is quicker than sorting, and smaller than the columns."""


def _places(keys: Any) -> tuple[Any, Any]:
    """The different keys in order, and for each key its place among them; none is negative."""
    most = int(keys.max(initial=0))
    if most > _TABLE:
        unique, inverse = np.unique(keys, return_inverse=True)
        return unique, inverse.reshape(-1)
    seen = np.zeros(most + 1, np.bool_)
    seen[keys] = True
    unique = np.flatnonzero(seen)
    place = np.zeros(most + 1, np.int32)
    place[unique] = np.arange(len(unique))
    return unique, place[keys]


def _by_name(names: list[str], name: Any, kind: Any, named: Callable[[str, int], int]) -> Any:
    """Kinds that depend on the name, worked out once per name and kind."""
    keys = name.astype(np.int64) * 16 + kind
    unique, place = _places(keys)
    answers = [named(names[key // 16], key % 16) if key % 16 != PYTHON else PYTHON for key in unique.tolist()]
    return np.array(answers, np.int8)[place] if answers else kind


_FARTHEST = 2**52
"""Microseconds: no clock of a profile shows more."""


def _nanoseconds(times: list[Any]) -> np.ndarray[Any, Any]:
    from decimal import Decimal  # the scanner in C needs none

    if isinstance(times[0], Decimal):
        if not all(isinstance(t, Decimal) and t.is_finite() for t in times):
            raise TypeError("a span without a start")
        return np.array([_exact(t) for t in times], np.int64)
    micros = np.array(times, np.float64)
    if not np.isfinite(micros).all():
        raise TypeError("a span without a start")
    # Whole microseconds first: those since 1970 times a thousand don't fit a float's 53 bits.
    micros = np.clip(micros, -_FARTHEST, _FARTHEST)
    above = np.floor(micros)
    return above.astype(np.int64) * 1000 + np.rint((micros - above) * 1000).astype(np.int64)


def _exact(micros: Decimal) -> int:
    from decimal import ROUND_HALF_EVEN, Decimal

    limited = min(max(micros, Decimal(-_FARTHEST)), Decimal(_FARTHEST))
    return int((limited * 1000).to_integral_value(ROUND_HALF_EVEN))


def _whole(of: Callable[[Any], Any], args: list[Any]) -> np.ndarray[Any, Any]:
    """One argument of each as whole numbers; -1 for what is none."""
    try:
        return np.fromiter(map(of, args), np.int64, len(args))
    except (ValueError, TypeError, OverflowError):
        return np.array([_number(of(a)) for a in args], np.int64)


def _number(value: Any) -> int:
    if isinstance(value, int | float):
        return int(value) if abs(value) < 1 << 62 else -1
    digits = re.search(r"\d+", value) if isinstance(value, str) and not value.startswith("0x") else None
    return int(digits[0][:18]) if digits else -1
