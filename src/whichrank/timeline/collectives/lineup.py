"""All entries of all ranks in one table, and the operations they belong to.

Rows are sorted by rank and, within a rank, by the order of issue. A collective is all rows with the
same group and sequence number; several rows of one rank in one collective are a coalesced call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.records.dump import STARTED, Call, Dump
from whichrank.timeline.collectives.completed import drop_foreign_status, has_batches, marks, of_messages, settle
from whichrank.timeline.collectives.signature import Signature, signature
from whichrank.timeline.identity.groups import Group, resolve_groups, world_size

if TYPE_CHECKING:
    from whichrank.timeline.collectives.attendance import Attendance

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]

# Above this many entries memory is worth some care: 46 bytes each.
MANY = 500_000
DUMP_COLUMNS = tuple(name for name, kind in Dump.__annotations__.items() if kind.startswith("npt.NDArray"))


class Lineup(Struct, dict=True):
    """The table. `first[r]`..`first[r + 1]` are the rows of the r-th dumped rank in `dumped`."""

    world: int
    dumped: list[int]
    groups: list[Group]
    calls: list[Call]
    signatures: list[Signature]
    """Distinct signatures; `call_signature` maps a call to its own."""
    call_signature: I32
    sources: dict[int, list[str]]
    wrapped: set[int]
    timed: bool
    """Whether any entry was ever seen "started": without timing NCCL never says so."""
    rank: I32
    group: I32
    call: I32
    seq: I32
    p2p: Bools
    created: I64
    completed: I64
    duration: npt.NDArray[np.float32]
    state: npt.NDArray[np.int8]
    done: Bools
    record: I32
    source: npt.NDArray[np.int16]
    """Which of the rank's sources the row came from."""
    first: dict[int, tuple[int, int]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    mtime: dict[int, int] = field(default_factory=dict)
    aborted: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    """Retired although unfinished: the watchdog timed out or aborted it."""
    dumps: list[Dump] = field(default_factory=list)
    """The dumps without their columns: group status, versions, file names."""

    attendances: dict[int, Attendance | None] = field(default_factory=dict)
    """By group who came to which collective; kept for those who ask again, unless there are many entries."""
    locator: str = "entry"
    """What a record number counts: entries of a dump, or lines of a log."""

    def __len__(self) -> int:
        return len(self.rank)

    def rows(self, rank: int) -> range:
        """The rows of one rank, in the order of issue."""
        start, stop = self.first.get(rank, (0, 0))
        return range(start, stop)

    @cached_property
    def placed(self) -> bool:
        """Whether every rank's entries name code lines; with some dumps lacking them, lines don't compare."""
        lines = np.array([bool(call.stack) for call in self.calls], np.bool_)
        return bool(lines.all()) or all(
            lines[self.call[start:stop]].any() for start, stop in self.first.values() if stop > start
        )

    @cached_property
    def _by_group(self) -> tuple[I32, npt.NDArray[np.intp]]:
        ends = np.cumsum(np.bincount(self.group + 1, minlength=len(self.groups) + 1))  # -1 stands for no group
        return in_order(self.group).astype(np.int32), ends

    @cached_property
    def call_marks(self) -> npt.NDArray[np.int64]:
        """For each call a scattered number of its signature, so that sums of them tell sets of signatures apart."""
        return scattered(np.arange(len(self.signatures)))[self.call_signature]

    def rows_of_group(self, group: int) -> npt.NDArray[np.intp]:
        """All rows of a group, by rank and then by the order of issue."""
        order, starts = self._by_group
        # As numpy wants an index: otherwise it would be converted for every column that is looked at.
        return order[starts[group] : starts[group + 1]].astype(np.intp)

    @cached_property
    def has_messages(self) -> bool:
        """Whether any row is a send or a receive."""
        return bool(self.p2p.any())

    def call_of(self, row: int) -> Call:
        return self.calls[int(self.call[row])]

    def signature_of(self, row: int) -> Signature:
        return self.signatures[int(self.call_signature[self.call[row]])]

    def group_of(self, row: int) -> Group:
        return self.groups[int(self.group[row])]


def scattered(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Small numbers spread over 64 bits (the finaliser of splitmix64)."""
    x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: npt.NDArray[np.int64] = (x ^ (x >> np.uint64(31))).astype(np.int64)
    return spread


def in_order(numbers: Column) -> npt.NDArray[np.intp]:
    """The stable order of whole numbers. Of 16 bits numpy sorts them by counting, some ten times as fast, and of 8 bits
    in half of that."""
    if len(numbers):
        lowest = int(numbers.min())
        width = int(numbers.max()) - lowest
        if width < 1 << 16:
            numbers = (numbers - numbers.dtype.type(lowest)).astype(np.uint8 if width < 1 << 8 else np.uint16)
    return np.argsort(numbers, kind="stable")


class _Calls:
    """The distinct calls of a job. Ranks often share the very objects, which are then looked at once."""

    def __init__(self) -> None:
        self.numbers: dict[Call, int] = {}
        self._by_id: dict[int, int] = {}

    def number(self, call: Call) -> int:
        found = self._by_id.get(id(call))
        if found is None:
            found = self._by_id[id(call)] = self.numbers.setdefault(call, len(self.numbers))
        return found


def _columns(dump: Dump, number: int, groups: list[int], calls: _Calls) -> dict[str, Column]:
    """A dump's part of the table, in the numbers of the whole job."""
    call_map = np.array([calls.number(call) for call in dump.calls], np.int32)
    group_map = np.array(groups, np.int32)
    call = call_map[dump.call]
    if has_batches(dump):
        ends = of_messages(dump)
        for index in sorted(set(dump.call[ends].tolist())):
            twin = replace(dump.calls[index], p2p=True)
            call[ends & (dump.call == index)] = calls.numbers.setdefault(twin, len(calls.numbers))
    done, aborted, issued = marks(dump)
    drop_foreign_status(dump)
    return {
        "group": group_map[dump.group],
        "call": call,
        "seq": dump.seq,
        "created": dump.created_ns,
        "completed": dump.completed_ns,
        "duration": dump.duration_ms,
        "state": dump.state,
        "done": done,
        "record": dump.record_id,
        "aborted": aborted,
        "issued": issued,
        "source": np.full(len(dump), number, np.int16),
    }


def _release(dump: Dump) -> None:
    """Forget the columns: they are in the table now. (An empty slice would keep the whole array.)"""
    for name in DUMP_COLUMNS:
        setattr(dump, name, np.empty(0, getattr(dump, name).dtype))


def _give_back() -> None:
    """Return freed memory: thousands of small arrays leave a heap that the C library keeps unless asked (glibc)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _in_order(parts: Sequence[Dump], pieces: Sequence[dict[str, Column]]) -> dict[str, Column]:
    """The order of issue of a rank with two recorders: by time, since their record ids don't compare."""
    if len(parts) == 1:
        return pieces[0]
    order = np.argsort(np.concatenate([dump.created_ns for dump in parts]), kind="stable")
    return {name: np.concatenate([piece[name] for piece in pieces])[order] for name in pieces[0]}


def line_up(dumps: Sequence[Dump], *, release: bool = False) -> Lineup | None:
    """Put the dumps of one run into one table; None when they hold no entries.

    With `release` the dumps lose their columns on the way: a large job fits into memory only once.
    """
    placed = [(dump.rank, dump) for dump in dumps if dump.rank is not None]
    dumps = [dump for _, dump in placed]
    total = sum(len(dump) for dump in dumps)
    if not total:
        return None
    world = world_size(dumps)
    groups, mapping = resolve_groups(dumps, world)
    calls = _Calls()
    per_rank: dict[int, list[tuple[Dump, list[int]]]] = {}
    for (rank, dump), row in zip(placed, mapping, strict=True):
        per_rank.setdefault(rank, []).append((dump, row))
    table: dict[str, Column] = {}
    first: dict[int, tuple[int, int]] = {}
    filled = 0
    for rank in sorted(per_rank):
        parts = [dump for dump, _ in per_rank[rank]]
        pieces = [_columns(dump, number, row, calls) for number, (dump, row) in enumerate(per_rank[rank])]
        first[rank] = (filled, filled + sum(len(dump) for dump in parts))
        for name, column in _in_order(parts, pieces).items():
            if name not in table:
                table[name] = np.empty(total, column.dtype)
            table[name][slice(*first[rank])] = column
        filled = first[rank][1]
        if release:
            for dump in parts:
                _release(dump)
    if release and total > MANY:
        _give_back()
    table["rank"] = np.repeat(np.array(list(first), np.int32), [stop - start for start, stop in first.values()])
    issued = table.pop("issued")
    lineup = _finish(world, groups, list(calls.numbers), first, dumps, table)
    if issued.any():
        settle(lineup, issued)
    return lineup


def _finish(
    world: int,
    groups: list[Group],
    calls: list[Call],
    first: dict[int, tuple[int, int]],
    dumps: list[Dump],
    table: dict[str, Any],
) -> Lineup:
    """What is known of the ranks beside their rows."""
    per_rank: dict[int, list[Dump]] = {rank: [] for rank in first}
    for dump in dumps:
        per_rank[dump.rank or 0].append(dump)
    distinct: dict[Signature, int] = {}
    call_signature = np.array([distinct.setdefault(signature(call), len(distinct)) for call in calls], np.int32)
    is_p2p = np.array([call.p2p for call in calls], np.bool_)
    return Lineup(
        world=world,
        dumped=sorted(per_rank),
        groups=groups,
        calls=calls,
        signatures=list(distinct),
        call_signature=call_signature,
        sources={rank: [dump.source for dump in parts] for rank, parts in per_rank.items()},
        wrapped={rank for rank, parts in per_rank.items() if any(dump.capacity_wrapped for dump in parts)},
        timed=bool((table["state"] == STARTED).any()) or bool(np.isfinite(table["duration"]).any()),
        p2p=is_p2p[table["call"]],
        first=first,
        newest={rank: max(dump.newest_ns for dump in parts) for rank, parts in per_rank.items()},
        mtime={rank: max(dump.mtime_ns or 0 for dump in parts) for rank, parts in per_rank.items()},
        dumps=dumps,
        **table,
    )
