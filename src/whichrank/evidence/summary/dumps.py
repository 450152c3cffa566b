"""A flight-recorder dump, shortened and packed.

What a verdict needs of a hang stands at the end of each group: the last calls, and those that are not finished. The
rest is cut off as the ring buffer itself would have done. Calls and groups are kept once for all ranks of a summary: at
100,000 ranks the list of a group's members would otherwise be the whole file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from whichrank.model.errors import UnreadableError
from whichrank.records.dump import COMPLETED, Call, Dump, GroupStatus, LocalGroup

LAST, LEAST, ALL = 320, 40, 4_000_000
"""Calls that are kept of a rank, whatever their group (some 5 bytes each when packed); and in a very large job, where
all of them together must fit into memory."""
LAST_OF_GROUP = 12
UNFINISHED = 512
"""How far back a group is kept for the sake of a call that is not finished."""
_INTS = ("record_id", "group", "call", "seq", "p2p_seq", "state", "retired")
_TYPES = (np.int32, np.int16, np.int32, np.int32, np.int32, np.int8, np.bool_)
_MOST = 1 << 20
_MOST_COLUMNS = 4096


def shortened(dump: Dump) -> Dump:
    """The end of the dump; the same object where nothing is cut off."""
    count = len(dump)
    world = max((len(group.members) for group in dump.groups if group.members), default=1)
    last = min(LAST, max(LEAST, ALL // world))
    if count <= last:
        return dump
    keep = np.zeros(count, np.bool_)
    keep[-last:] = True
    done = (dump.state == COMPLETED) | dump.retired
    for number in np.unique(dump.group):
        rows = np.flatnonzero(dump.group == number)
        keep[rows[-LAST_OF_GROUP:]] = True
        pending = np.flatnonzero(~done[rows][-UNFINISHED:])
        if len(pending):
            # A group is kept without a hole: its numbers must be seen to follow each other.
            keep[rows[-UNFINISHED:][pending[0] :]] = True
    if keep.all():
        return dump
    used = np.unique(dump.call[keep])
    renumbered = np.zeros(len(dump.calls), np.int32)
    renumbered[used] = np.arange(len(used), dtype=np.int32)
    columns = {name: getattr(dump, name)[keep] for name in (*_INTS, "created_ns", "completed_ns", "duration_ms")}
    columns["call"] = renumbered[columns["call"]]
    return Dump(
        dump.source, dump.rank, dump.version, dump.comm_lib, dump.groups, [dump.calls[i] for i in used], dump.status,
        dump.has_frames, dump.host, dump.mtime_ns, dump.newest_ns, True, **columns,
    )  # fmt: skip


class Shared(Struct):
    """What dumps share, by its packed form."""

    packed: list[bytes] = field(default_factory=list)
    _known: dict[bytes, int] = field(default_factory=dict)
    _lists: dict[int, tuple[Sequence[int], list[int]]] = field(default_factory=dict)

    def group(self, group: LocalGroup) -> int:
        """Members as even runs; a list that several ranks share is looked through once."""
        ranges = None
        if group.members is not None:
            if id(group.members) not in self._lists:
                self._lists[id(group.members)] = (group.members, _ranges(group.members))
            ranges = self._lists[id(group.members)][1]
        return self.number([group.pg_id, group.name, group.desc, ranges])

    def number(self, value: Any) -> int:
        data = msgspec.msgpack.encode(value)
        at = self._known.get(data)
        if at is None:
            at = self._known[data] = len(self.packed)
            self.packed.append(data)
        return at


def packed(dump: Dump, whole: int, shared: Shared) -> dict[str, Any]:
    """The dump as plain values; `whole` is how many calls it had."""
    return {
        "source": dump.source, "rank": dump.rank, "version": list(dump.version), "comm_lib": dump.comm_lib,
        "groups": [shared.group(group) for group in dump.groups],
        "calls": [shared.number(call) for call in dump.calls],
        "status": {number: [s.enqueued, s.started, s.completed] for number, s in dump.status.items()},
        "has_frames": dump.has_frames, "host": dump.host, "mtime_ns": dump.mtime_ns, "newest_ns": dump.newest_ns,
        "wrapped": dump.capacity_wrapped, "count": len(dump), "whole": whole,
        "columns": _columns(dump),
    }  # fmt: skip


def _ranges(members: Sequence[int]) -> list[int]:
    """Start, count and step of even runs, in the order of the members."""
    numbers = np.asarray(members, np.int64)
    found: list[int] = []
    at = 0
    while at < len(numbers):
        steps = np.diff(numbers[at:])
        step = int(steps[0]) if len(steps) else 1
        uneven = np.flatnonzero(steps != step)
        count = int(uneven[0]) + 1 if len(uneven) else len(steps) + 1
        found += [int(numbers[at]), count, step]
        at += count
    return found


def _columns(dump: Dump) -> list[Any]:
    # Times to the microsecond: clocks of hosts are not that close.
    # How long it took, doubled; an odd number stands for "never".
    created, completed = dump.created_ns // 1000, dump.completed_ns // 1000
    took = np.where(dump.completed_ns > 0, 2 * (completed - created), -1)
    numbers = [*(getattr(dump, name).astype(np.int64) for name in _INTS), created, took]
    return [*map(_small, numbers), _bytes(dump.duration_ms)]


def _small(column: npt.NDArray[np.int64]) -> list[Any]:
    """Its first value, then the differences in the smallest type that holds them, byte by byte: these shrink well."""
    first = int(column[0]) if len(column) else 0
    column = np.diff(column, prepend=first)
    for name in ("<i1", "<i2", "<i4", "<i8"):
        if not len(column) or (np.iinfo(name).min <= column.min() and column.max() <= np.iinfo(name).max):
            break
    return [name, first, _bytes(column.astype(name))]


def _bytes(column: npt.NDArray[Any]) -> bytes:
    return column.view(np.uint8).reshape(len(column), column.dtype.itemsize).T.tobytes() if len(column) else b""


class Tables(Struct):
    """Calls and groups by their packed form, over all summaries that are read: equal ones become one object."""

    calls: dict[bytes, Call] = field(default_factory=dict)
    groups: dict[bytes, LocalGroup] = field(default_factory=dict)
    members: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    columns: dict[tuple[Any, ...], npt.NDArray[Any]] = field(default_factory=dict)
    """Ranks that run one program differ in times alone."""
    budget: int = 1 << 23
    """Members of all different groups together."""

    def column(self, kind: type[Any], packed: Any, count: int) -> npt.NDArray[Any]:
        """A column of this type; the same one for all ranks that have the same."""
        key = (kind, count, *packed)
        found = self.columns.get(key)
        if found is None:
            if len(self.columns) >= _MOST_COLUMNS:
                self.columns.clear()
            found = _floats(packed[0], count) if kind is np.float32 else _large(packed, count).astype(kind)
            found.flags.writeable = False
            self.columns[key] = found
        return found

    def call(self, data: bytes) -> Call:
        if data not in self.calls:
            self.calls[data] = msgspec.msgpack.decode(data, type=Call)
        return self.calls[data]

    def group(self, data: bytes) -> LocalGroup:
        if data not in self.groups:
            number, name, desc, ranges = msgspec.msgpack.decode(data, type=tuple[int, str, str, tuple[int, ...] | None])
            self.groups[data] = LocalGroup(number, name, desc, None if ranges is None else self._members(ranges))
        return self.groups[data]

    def _members(self, ranges: tuple[int, ...]) -> tuple[int, ...]:
        if ranges not in self.members:
            found: list[int] = []
            for start, count, step in zip(*[iter(ranges)] * 3, strict=True):
                if not 0 <= count <= _MOST or not abs(step) <= _MOST or not 0 <= start <= _MOST:
                    raise ValueError("no list of members")
                self.budget -= count
                if self.budget < 0:
                    raise ValueError("more members than any job has")
                found += range(start, start + count * step, step) if step else [start] * count
            self.members[ranges] = tuple(found)
        return self.members[ranges]


class _Packed(msgspec.Struct):
    source: str
    rank: int | None
    version: tuple[int, int]
    comm_lib: str
    groups: list[int]
    calls: list[int]
    status: dict[int, tuple[int, int, int]]
    has_frames: bool
    host: str | None
    mtime_ns: int | None
    newest_ns: int
    wrapped: bool
    count: int
    whole: int
    columns: list[Any]


def unpacked(values: Any, shared: Sequence[bytes], tables: Tables) -> tuple[Dump, int]:
    """The dump of such values, and how many calls the whole one had."""
    try:
        given = msgspec.convert(values, _Packed)
        *ints, created, took = given.columns[:-1]
        columns: dict[str, Any] = {
            name: tables.column(kind, column, given.count)
            for name, kind, column in zip(_INTS, _TYPES, ints, strict=True)
        }
        created, took = _large(created, given.count), _large(took, given.count)
        groups = [tables.group(shared[number]) for number in given.groups]
        calls = [tables.call(shared[number]) for number in given.calls]
        for name, size in (("group", len(groups)), ("call", len(calls))):
            if given.count and not (columns[name].min() >= 0 and columns[name].max() < size):
                raise ValueError(f"a {name} that is not there")
        dump = Dump(
            given.source, given.rank, given.version, given.comm_lib, groups, calls,
            {number: GroupStatus(*counts) for number, counts in given.status.items()}, given.has_frames, given.host,
            given.mtime_ns, given.newest_ns, given.wrapped,
            created_ns=1000 * created,
            completed_ns=np.where(took == -1, 0, 1000 * (created + took // 2)),
            duration_ms=tables.column(np.float32, [given.columns[-1]], given.count), **columns,
        )  # fmt: skip
    except (msgspec.MsgspecError, ValueError, IndexError, TypeError, KeyError, OverflowError) as error:
        raise UnreadableError(f"a damaged dump in a summary: {error}"[:200]) from error
    return dump, given.whole


def _large(column: Any, count: int) -> npt.NDArray[np.int64]:
    name, first, data = column
    if (
        name not in ("<i1", "<i2", "<i4", "<i8")
        or not isinstance(first, int)
        or not 0 <= count <= _MOST
        or len(data) != count * int(name[-1])
    ):
        raise ValueError("a column of another size")
    turned = np.frombuffer(data, np.uint8).reshape(int(name[-1]), count).T.copy()
    summed: npt.NDArray[np.int64] = turned.view(name).ravel().cumsum(dtype=np.int64)
    summed += first
    return summed


def _floats(data: bytes, count: int) -> npt.NDArray[np.float32]:
    if len(data) != 4 * count:
        raise ValueError("a column of another size")
    found: npt.NDArray[np.float32] = np.frombuffer(data, np.uint8).reshape(4, count).T.copy().view(np.float32).ravel()
    return found
