"""NCCL's own lines about collectives, lined up like the entries of the flight recorder.

NCCL prints a line when a call is enqueued and none when it ends. What can be said: the n-th call of a
communicator is the same collective on all its members; one that every member has printed was joined by all. Messages
that were launched together (`batch_isend_irecv`, an `all_to_all` of lists) have one launch counter, and end with an
entry `coalesced`, as the recorder writes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whichrank.records.dump import COMPLETED, SCHEDULED, Call, Dump, LocalGroup
from whichrank.records.nccl import DATATYPES, OPS, CallColumns, CommCalls
from whichrank.timeline.identity.who import People

_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
}
_MESSAGES = ("Send", "Recv")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_COALESCED = Call(
    op="coalesced", backend="nccl", input_sizes=(), output_sizes=(), input_dtypes=(), output_dtypes=(), stack=(),
    thread="", p2p=True, timeout_ms=None,
)  # fmt: skip
_UNKNOWN = -1
# Of long logs only the newest calls are compared: as far back as a rank's program is read anyway.
_NEWEST, _MANY = 400, 100_000


class _Reached(NamedTuple):
    """How many collectives all members have called, and by sender and receiver how many messages both."""

    collectives: int
    messages: Mapping[tuple[int, int], int]


def calls_as_dumps(calls: Sequence[CommCalls], people: People) -> list[Dump]:
    """One dump per process whose global rank is known, with its calls as entries."""
    comms = _communicators(calls, people)
    by_rank: dict[int, list[tuple[CommCalls, LocalGroup, _Reached]]] = defaultdict(list)
    many = sum(len(part.kept) for part in calls) > _MANY
    for (name, _), (members, parts) in comms.items():
        totals = [part.total if many else _collectives(part) for _, part in parts]
        reached = min(totals) if len(parts) == len(members) or len(parts) == 1 else 0
        messages = {} if many else _messages_of_both(part for _, part in parts)
        for rank, part in parts:
            desc = "default_pg" if len(members) == people.world else ""
            by_rank[rank].append(
                (part, LocalGroup(len(by_rank[rank]), name, desc, members), _Reached(reached, messages))
            )
    return [_dump(rank, parts, _NEWEST if many else None) for rank, parts in sorted(by_rank.items())]


def _communicators(
    calls: Sequence[CommCalls], people: People
) -> dict[tuple[str, int], tuple[tuple[int, ...], list[tuple[int, CommCalls]]]]:
    """Calls by communicator: its members as global ranks, and what each of them printed."""
    grouped: dict[tuple[str, int], list[tuple[int, CommCalls]]] = defaultdict(list)
    unnamed: Counter[int] = Counter()
    for part in _each_once(calls):
        if part.nranks is None:
            continue
        whole = part.nranks == people.world
        rank = part.rank if whole else None
        rank = people.rank_of(part.process.pid, part.process.host) if rank is None else rank
        if rank is None or (part.rank is None and not (whole and part.complete)):
            continue
        name = part.comm_id or f"{part.nranks} ranks, number {part.generation}"
        if part.rank is None:
            # The log holds calls alone, not how the communicator was made: all ranks begin to use theirs in one order.
            name = f"all ranks, number {unnamed[rank]}"
            unnamed[rank] += 1
        grouped[name, part.nranks].append((rank, part))
    result = {}
    for (name, size), parts in grouped.items():
        if size == people.world:
            members = tuple(range(size))
        else:
            members = tuple(sorted({rank for rank, _ in parts}))
            if len(members) != size:
                continue
        if len({rank for rank, _ in parts}) == len(parts):
            result[name, size] = (members, parts)
    return result


def _each_once(calls: Sequence[CommCalls]) -> list[CommCalls]:
    """The fullest log of each communicator of a process, by first use: outputs are often kept twice."""
    fullest: dict[tuple[object, ...], CommCalls] = {}
    for part in calls:
        key = (part.process.host, part.process.pid, part.comm, part.generation)
        if key not in fullest or part.total > fullest[key].total:
            fullest[key] = part
    return sorted(fullest.values(), key=lambda part: int(part.kept.numbers[0]) if len(part.kept) else 0)


def _collectives(part: CommCalls) -> int:
    """How many collectives a process has called: messages are between two ranks, and count for nobody else."""
    return int(_numbers(part.calls, whole=True)[-1]) if part.complete and part.total else part.total


def _numbers(calls: CallColumns, *, whole: bool) -> npt.NDArray[np.int64]:
    """The number of the collective in each line; a message has that of the collective before it. Where there are only
    messages, or calls are missing at the beginning, all lines count."""
    messages = _are_messages(calls)
    if not whole or not messages.any() or messages.all():
        return calls.number.astype(np.int64) + 1
    return np.cumsum(~messages, dtype=np.int64)


def _messages_of_both(parts: Iterable[CommCalls]) -> dict[tuple[int, int], int]:
    """By sender and receiver: how many messages both have called."""
    called: dict[tuple[int, int, str], int] = Counter()
    for part in parts:
        own = -1 if part.rank is None else part.rank
        for (name, peer), count in Counter(_peers(part.calls)).items():
            called[(own, peer, name) if name == "Send" else (peer, own, name)] += count
    pairs = {(sender, receiver) for sender, receiver, _ in called}
    return {pair: min(called[pair[0], pair[1], name] for name in _MESSAGES) for pair in pairs}


def _peers(calls: CallColumns) -> list[tuple[str, int]]:
    """Of each message: which it is, and with whom."""
    where = np.flatnonzero(_are_messages(calls))
    return [
        (calls.functions[func], peer)
        for func, peer in zip(calls.func[where].tolist(), calls.root[where].tolist(), strict=True)
    ]


def _joined(part: CommCalls, calls: CallColumns, reached: _Reached, *, whole: bool) -> npt.NDArray[np.bool_]:
    """Which calls all members have come to. A message is known to be through where a later collective is; where both
    have called it as part of a batch, or have called the next one between them too."""
    numbers, messages = _numbers(calls, whole=whole), _are_messages(calls)
    joined = numbers + (messages if whole and not messages.all() else 0) <= reached.collectives
    if not whole or part.rank is None:
        return joined
    batches = _in_batches(calls)
    told: Counter[tuple[str, int]] = Counter()
    for at, (name, peer) in zip(np.flatnonzero(messages).tolist(), _peers(calls), strict=True):
        told[name, peer] += 1
        both = reached.messages.get((part.rank, peer) if name == "Send" else (peer, part.rank), 0)
        joined[at] |= told[name, peer] < both + batches[at]
    return joined


def _are_messages(calls: CallColumns) -> npt.NDArray[np.bool_]:
    return np.isin(calls.func, [at for at, name in enumerate(calls.functions) if name in _MESSAGES])


def _ends_of_batches(calls: CallColumns) -> npt.NDArray[np.int64]:
    """Behind which calls a batch of messages ends."""
    if not len(calls):
        return np.empty(0, np.int64)
    together = _launched_with_next(calls)
    return np.flatnonzero(together < np.append(False, together[:-1]))


def _in_batches(calls: CallColumns) -> npt.NDArray[np.bool_]:
    """Which calls are messages that were launched with others."""
    together = _launched_with_next(calls)
    return together | np.append(False, together[:-1]) if len(calls) else together


def _launched_with_next(calls: CallColumns) -> npt.NDArray[np.bool_]:
    """Which messages have the launch counter of the next one; none where it does not count."""
    if len(np.unique(calls.op_count)) < 2:
        return np.zeros(len(calls), np.bool_)
    messages = _are_messages(calls)
    return np.append((calls.op_count[1:] == calls.op_count[:-1]) & messages[1:] & messages[:-1], False)


def _call(part: CommCalls, func: str, count: int, datatype: int, op: int, root: int) -> Call:
    name = _NAMES.get(func, func.lower())
    peer = name in ("send", "recv")
    arrow = "->" if name == "send" else "<-"
    dtype = DATATYPES[datatype] if 0 <= datatype < len(DATATYPES) else f"type {datatype}"
    sizes = ((count,),) if count != _UNKNOWN else ()
    return Call(
        op=f"{name} {part.rank}{arrow}{root}" if peer else name,
        backend="nccl",
        input_sizes=sizes,
        output_sizes=sizes,
        input_dtypes=(dtype,),
        output_dtypes=(dtype,),
        stack=(),
        thread="",
        p2p=peer,
        timeout_ms=None,
        root=root if name in _ROOTED else None,
        reduce=(OPS[op] if 0 <= op < len(OPS) else f"op {op}") if name in _REDUCING else None,
    )


def _dump(rank: int, parts: Sequence[tuple[CommCalls, LocalGroup, _Reached]], newest: int | None) -> Dump:
    table: dict[Call, int] = {}
    columns: dict[str, list[np.ndarray]] = defaultdict(list)
    for index, (part, _, reached) in enumerate(parts):
        calls = part.calls if newest is None else part.last(newest)
        keys = zip(
            calls.func.tolist(),
            calls.count.tolist(),
            calls.datatype.tolist(),
            calls.op.tolist(),
            calls.root.tolist(),
            strict=True,
        )
        seen: dict[tuple[int, ...], int] = {}
        numbers = np.empty(len(calls), np.int32)
        for position, key in enumerate(keys):
            if key not in seen:
                call = _call(part, calls.functions[key[0]], *key[1:])
                seen[key] = table.setdefault(call, len(table))
            numbers[position] = seen[key]
        whole = newest is None and part.complete
        rows: dict[str, npt.NDArray[Any]] = {
            "call": numbers,
            "group": np.full(len(calls), index, np.int16),
            "seq": np.maximum(_numbers(calls, whole=whole), 1).astype(np.int32),
            "line": calls.line.astype(np.int32),
            "state": np.where(_joined(part, calls, reached, whole=whole), COMPLETED, SCHEDULED).astype(np.int8),
        }
        ends = _ends_of_batches(calls)
        for name, column in rows.items():
            added = column[ends]
            if name == "call" and len(ends):
                added = np.full(len(ends), table.setdefault(_COALESCED, len(table)), np.int32)
            columns[name].append(np.insert(column, ends + 1, added))
    order = np.argsort(np.concatenate(columns["line"]), kind="stable")
    merged = {name: np.concatenate(chunks)[order] for name, chunks in columns.items()}
    size = len(order)
    zeros = np.zeros(size, np.int64)
    return Dump(
        source=parts[0][0].process.source,
        rank=rank,
        version=(0, 0),
        comm_lib=parts[0][0].process.version or "",
        groups=[group for _, group, _ in parts],
        calls=list(table),
        status={},
        has_frames=False,
        host=parts[0][0].process.host,
        record_id=merged["line"],
        group=merged["group"],
        call=merged["call"],
        seq=merged["seq"],
        p2p_seq=np.zeros(size, np.int32),
        created_ns=zeros,
        completed_ns=zeros,
        duration_ms=np.full(size, np.nan, np.float32),
        state=merged["state"],
        retired=np.zeros(size, np.bool_),
        capacity_wrapped=newest is not None or not all(part.complete for part, _, _ in parts),
    )
