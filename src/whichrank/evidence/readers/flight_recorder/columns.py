"""The entries of a flight-recorder dump as columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from whichrank.evidence.pickle.native import Records, Wanted
from whichrank.evidence.readers.flight_recorder.calls import PARTS, Calls, CallsOfRanks, Shared

_RECORD, _SEQ, _OLD_SEQ, _P2P, _CREATED, _CREATED_US, _STARTED, _COMPLETED = range(8)
COLUMN = {
    "record_id": _RECORD,
    "collective_seq_id": _SEQ,
    "seq_id": _OLD_SEQ,  # before dump version 2
    "p2p_seq_id": _P2P,
    "time_created_ns": _CREATED,
    "time_created_us": _CREATED_US,  # torch 2.2
    "time_discovered_started_ns": _STARTED,
    "time_discovered_completed_ns": _COMPLETED,
}
DURATION = "duration_ms"
MARKER = "profiling_name"
"""What an entry has, and nothing else in a dump."""
_OF_RANKS = CallsOfRanks()
NATIVE = Wanted(MARKER, tuple(COLUMN), (DURATION,), ("op_id", "thread_id"), PARTS, _OF_RANKS.known)
"""What the decoder in C looks for."""

_LARGEST_KEPT = 1 << 18
"""Bytes: the lines of 65,000 entries; the recorder keeps 2,000 unless told otherwise."""
_INT32 = (1 << 31) - 1

Ints = npt.NDArray[np.int64]


class Columns(Struct):
    """Entries in ascending order of record_id."""

    record_id: npt.NDArray[np.int32]
    group: npt.NDArray[np.int16]
    call: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int32]
    p2p_seq: npt.NDArray[np.int32]
    created_ns: Ints
    completed_ns: Ints
    duration_ms: npt.NDArray[np.float32]
    state: npt.NDArray[np.int8]
    retired: npt.NDArray[np.bool_]
    has_frames: bool
    numbered: bool
    """False where entries carry no record_id (torch 2.2): they are numbered from 0 here."""
    newest_ns: int
    """The last time that any entry notes."""
    dropped: int
    """Entries that are no entries."""


class Kinds(Struct, frozen=True):
    """What entries have beside their numbers, as columns."""

    call: npt.NDArray[np.int32]
    group: npt.NDArray[np.int16]
    state: npt.NDArray[np.int8]
    retired: npt.NDArray[np.bool_]


def columns_of(records: Records) -> tuple[Columns, Calls]:
    """Those of the decoder in C, which has all numbers in columns already."""
    values = np.frombuffer(records.columns, np.int64).reshape(len(COLUMN) + 1, -1)
    calls, shared, has_frames = Calls(), [], False
    for said, entry in records.examples:
        call, framed = said if isinstance(said, tuple) else _OF_RANKS.call(said, entry)
        shared.append(calls.known(call, entry))
        has_frames = has_frames or framed
    of_lines = _of_lines if len(records.lines) <= _LARGEST_KEPT else _of_lines.__wrapped__
    kinds, entries = of_lines(records.lines, tuple(shared))
    dropped = 0
    if entries is not None:
        dropped, values = len(entries) - int(np.count_nonzero(entries)), values[:, entries]
    durations = values[-1].view(np.float64)
    return arranged(kinds, values[:-1], durations, has_frames, records.unnumbered, dropped), calls


@lru_cache(maxsize=64)
def _of_lines(lines: bytes, shared: tuple[Shared, ...]) -> tuple[Kinds, npt.NDArray[np.bool_] | None]:
    """The kinds of a dump's entries, and which items are entries, where some are none.

    Ranks that run one program say the same here."""
    numbers = np.frombuffer(lines, np.int32)
    entries = numbers >= 0
    some = not entries.all()
    return kinds_of(shared, numbers[entries] if some else numbers), entries if some else None


def kinds_of(shared: Sequence[Shared], lines: npt.NDArray[np.integer[Any]]) -> Kinds:
    call, group, state, retired = np.array(shared, np.int32).reshape(-1, 4).T
    return Kinds(
        _kept_once(call[lines]),
        _kept_once(group.astype(np.int16)[lines]),
        _kept_once(state.astype(np.int8)[lines]),
        _kept_once(retired.astype(np.bool_)[lines]),
    )


def arranged(
    kinds: Kinds,
    numbers: Ints,
    durations: npt.NDArray[np.float64],
    has_frames: bool,
    unnumbered: bool,
    dropped: int,
) -> Columns:
    record_id = np.arange(numbers.shape[1]) if unnumbered else numbers[_RECORD]
    if (record_id[1:] < record_id[:-1]).any():
        order = np.argsort(record_id, kind="stable")
        record_id, numbers, durations = record_id[order], numbers[:, order], durations[order]
        kinds = Kinds(kinds.call[order], kinds.group[order], kinds.state[order], kinds.retired[order])
    counts = _int32(numbers[: _P2P + 1])
    seq, created = counts[_SEQ], numbers[_CREATED]
    if counts[_OLD_SEQ].any():
        seq = np.where(seq == 0, counts[_OLD_SEQ], seq)
    if numbers[_CREATED_US].any():
        created = np.where(created == 0, numbers[_CREATED_US] * 1000, created)
    with np.errstate(over="ignore"):
        duration_ms = durations.astype(np.float32)
    return Columns(
        record_id=_kept_once(_int32(record_id) if unnumbered else counts[_RECORD]),
        group=kinds.group,
        call=kinds.call,
        seq=_kept_once(seq),
        p2p_seq=_kept_once(counts[_P2P]),
        created_ns=created.copy(),  # a view would keep all columns
        completed_ns=numbers[_COMPLETED].copy(),
        duration_ms=_kept_once(duration_ms),
        state=kinds.state,
        retired=kinds.retired,
        has_frames=has_frames,
        numbered=not unnumbered,
        newest_ns=max(int(created.max(initial=0)), int(numbers[_STARTED : _COMPLETED + 1].max(initial=0))),
        dropped=dropped,
    )


_Column = TypeVar("_Column", bound=npt.NDArray[Any])
_KEPT: dict[bytes, dict[str, npt.NDArray[Any]]] = {}
_MOST_KEPT = 512


def _kept_once(column: _Column) -> _Column:
    """The same column of another rank, if there is one: ranks that run one program differ in times alone."""
    raw = column.tobytes()
    same = _KEPT.get(raw)
    if same is None:
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.clear()
        same = _KEPT[raw] = {}
    return cast("_Column", same.setdefault(column.dtype.str, np.frombuffer(raw, column.dtype)))


def _int32(values: Ints) -> npt.NDArray[np.int32]:
    if values.max(initial=0) > _INT32 or values.min(initial=0) < -_INT32:
        values = np.minimum(np.maximum(values, -_INT32), _INT32)
    return values.astype(np.int32)
