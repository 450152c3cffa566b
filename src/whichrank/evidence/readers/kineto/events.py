"""Events of a trace into columns: only what is needed of them is decoded, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from whichrank.evidence.readers.kineto import kinds
from whichrank.evidence.readers.kineto.collectives import described
from whichrank.records.trace import COMMUNICATION, MARK, OPERATOR, PYTHON, Collective, Lane, Spans

MOST_SPANS = 12_000_000
"""Of one file; what is left is the beginning of the trace."""
MOST_NAMES = 1 << 20
LONGEST_NAME = 512
SHORT_US = 20
"""Calls of the driver that neither launch nor wait are passed over when they are shorter: there are many of them."""
_NOTHING = msgspec.Raw(b"")
_DURATION, _CATEGORY, _PLACE = attrgetter("dur"), attrgetter("cat"), attrgetter("pid", "tid")
_STREAM, _CORRELATION = attrgetter("stream"), attrgetter("correlation")
_EXACT = re.compile(rb'"ts"\s*:\s*\d{14,}\.\d')
Place = int | str | float | None


class Args(msgspec.Struct, gc=False):
    """What is used of an event's arguments."""

    stream: Place = -1
    correlation: int | float | str | None = -1
    collective: str | None = msgspec.field(name="Collective name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    size: Any = msgspec.field(name="Group size", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    desc: Any = msgspec.field(name="Process Group Description", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)


class Span(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """A complete event."""

    cat: str | None = None
    name: str | None = ""
    pid: Place = None
    tid: Place = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class ExactSpan(msgspec.Struct, gc=False, tag="X", tag_field="ph"):
    """The same where a float would lose nanoseconds: microseconds since 1970 with decimals."""

    cat: str | None = None
    name: str | None = ""
    pid: Place = None
    tid: Place = None
    ts: Decimal | None = None
    dur: int | float | None = None
    args: Args | None = None


class _Label(msgspec.Struct, gc=False):
    name: Any = None


class Title(msgspec.Struct, gc=False, tag="M", tag_field="ph"):
    """The name of a process or thread."""

    name: str | None = ""
    pid: Place = None
    tid: Place = None
    args: _Label | None = None


# Flows, instants, counters and the like are passed over as cheaply as the decoder can.
_REST = tuple(
    msgspec.defstruct(f"Phase{number}", [], tag=phase, tag_field="ph", gc=False)
    for number, phase in enumerate("BEICitsfPNODSTpFRcvVabenG(),=x")
)


def span_class(first: bytes) -> Any:
    """What spans are decoded to; the first bytes of the file tell how exact it must be."""
    return ExactSpan if _EXACT.search(first) else Span


def decoder(span: Any = Span) -> Callable[[bytes], list[Any]]:
    """How to decode a batch of events."""
    union: Any = span
    for other in (Title, *_REST):
        union = union | other
    strict = msgspec.json.Decoder(list[union])
    phased: Any = msgspec.json.Decoder(list[dict[str, Any]])

    def decode(data: bytes) -> list[Any]:
        try:
            return strict.decode(data)
        except msgspec.ValidationError:
            return [_lenient(event, span) for event in phased.decode(data)]

    return decode


def _lenient(event: dict[str, Any], span: Any) -> Any:
    """An event of odd types: what is not of its kind counts as absent."""
    kind: Any = {"X": span, "M": Title}.get(str(event.get("ph")), _REST[0])
    try:
        return msgspec.convert(event, kind, strict=False)
    except msgspec.ValidationError:
        args = event.get("args")
        kept = {k: v for k, v in args.items() if isinstance(v, int | str)} if isinstance(args, dict) else {}
        slim = {k: v for k, v in event.items() if isinstance(v, int | float | str) and not isinstance(v, bool)}
        try:
            return msgspec.convert({**slim, "args": kept}, kind, strict=False)
        except msgspec.ValidationError:
            return _REST[0]()


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


@dataclass
class Table:
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
    kind: Any = Span
    """The class that the decoder gives to spans."""
    _known: dict[Any, int] = field(default_factory=dict)

    def add(self, batch: list[Any]) -> None:
        """The spans of one batch."""
        self.events += len(batch)
        calls, kind = self.calls, self.kind
        spans = [
            event
            for event in batch
            if event.__class__ is kind
            and (event.cat != "cuda_runtime" or calls[event.name] or (event.dur or 0) > SHORT_US)
        ]
        if len(spans) < len(batch):
            self._titles([event for event in batch if event.__class__ is Title])
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
            self.events -= len(whole)
            self.add(whole)
            return
        length = np.clip(np.rint(length * 1000), 0, 2**60)
        args = [e.args or _NO_ARGS for e in spans]
        self.columns.append(
            (
                start,
                start + length.astype(np.int64),
                name,
                np.fromiter(map(self.lanes.__getitem__, map(_PLACE, spans)), np.int32, len(spans)),
                np.fromiter(map(self.categories.__getitem__, map(_CATEGORY, spans)), np.int32, len(spans)),
                _whole(_STREAM, args),
                _whole(_CORRELATION, args),
                self._comms(name, names, args),
            )
        )
        self.count += len(spans)

    def _comms(self, name: np.ndarray[Any, Any], names: list[Any], args: list[Args]) -> np.ndarray[Any, Any]:
        """The collectives that spans of telling names carry arguments of."""
        found = np.full(len(name), -1, np.int32)
        rows = {row for row, arg in enumerate(args) if arg.collective is not None}
        rows.update(
            r for r in np.flatnonzero(np.isin(name, self.names.telling)).tolist() if args[r].shapes is not _NOTHING
        )
        for row in rows:
            found[row] = self._comm(described(names[row], args[row]))
        return found

    def _comm(self, found: Collective) -> int:
        known = self._known.setdefault(found, len(self.collectives))
        if known == len(self.collectives):
            self.collectives.append(found)
        return known

    def _titles(self, titles: Any) -> None:
        for title in titles:
            if title.args is not None and isinstance(title.args.name, str) and len(self.titles) < 1 << 16:
                self.titles[(title.name or "", title.pid, title.tid)] = title.args.name

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


_NO_ARGS = Args()


def _finite(value: Any) -> bool:
    return value is not None and abs(value) < float("inf")


def _streams(lanes: list[Lane], lane: Any, stream: Any, spans: Spans) -> None:
    """Spans of one lane on several streams get a lane for each stream."""
    known: dict[tuple[int, int], int] = {}
    keys = lane.astype(np.int64) << 32 | (stream + 1)
    unique, inverse = np.unique(keys, return_inverse=True)
    for key in unique.tolist():
        old, number = int(key >> 32), int(key & 0xFFFFFFFF) - 1
        known[old, number] = len(lanes)
        text = f"stream {number}" if number >= 0 else lanes[old].thread
        lanes.append(Lane(lanes[old].process, text, True))
    spans.lane = (np.arange(len(unique), dtype=np.int32) + len(lanes) - len(unique))[inverse.reshape(-1)]


def _by_name(names: list[str], name: Any, kind: Any, named: Callable[[str, int], int]) -> Any:
    """Kinds that depend on the name, worked out once per name and kind."""
    keys = name.astype(np.int64) * 16 + kind
    unique, inverse = np.unique(keys, return_inverse=True)
    answers = [named(names[key // 16], key % 16) if key % 16 != PYTHON else PYTHON for key in unique.tolist()]
    return np.array(answers, np.int8)[inverse.reshape(-1)] if answers else kind


_FARTHEST = Decimal(2**53)
"""Microseconds: no clock of a profile shows more."""


def _nanoseconds(times: list[Any]) -> np.ndarray[Any, Any]:
    if isinstance(times[0], Decimal):
        if not all(isinstance(t, Decimal) and t.is_finite() for t in times):
            raise TypeError("a span without a start")
        return np.array([int(min(max(t, -_FARTHEST), _FARTHEST) * 1000) for t in times], np.int64)
    # Relative to the batch's first: microseconds since 1970 times a thousand don't fit a float's 53 bits.
    micros = np.array(times, np.float64)
    if not np.isfinite(micros).all():
        raise TypeError("a span without a start")
    base = int(micros[0])
    offsets = (micros - base) * 1000
    return np.rint(np.clip(offsets, -(2**57), 2**57)).astype(np.int64) + min(max(base, -(2**53)), 2**53) * 1000


def _whole(of: Callable[[Any], Any], args: list[Args]) -> np.ndarray[Any, Any]:
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
