"""NCCL's own lines about collectives, lined up like the entries of the flight recorder.

NCCL prints a line when a call is enqueued and none when it ends. What can be said: the n-th call of a
communicator is the same collective on all its members; one that every member has printed was joined by all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

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
_UNKNOWN = -1
# Of long logs only the newest calls are compared: as far back as a rank's program is read anyway.
_NEWEST, _MANY = 400, 100_000


def calls_as_dumps(calls: Sequence[CommCalls], people: People) -> list[Dump]:
    """One dump per process whose global rank is known, with its calls as entries."""
    comms = _communicators(calls, people)
    by_rank: dict[int, list[tuple[CommCalls, LocalGroup, int]]] = defaultdict(list)
    many = sum(len(part.kept) for part in calls) > _MANY
    for (name, _), (members, parts) in comms.items():
        totals = [part.total if many else _collectives(part) for _, part in parts]
        reached = min(totals) if len(parts) == len(members) or len(parts) == 1 else 0
        for rank, part in parts:
            desc = "default_pg" if len(members) == people.world else ""
            by_rank[rank].append((part, LocalGroup(len(by_rank[rank]), name, desc, members), reached))
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


def _joined(calls: CallColumns, reached: int, *, whole: bool) -> npt.NDArray[np.bool_]:
    """Which calls all members have come to; a message is known to be through where a later collective is."""
    numbers, messages = _numbers(calls, whole=whole), _are_messages(calls)
    return numbers + (messages if whole and not messages.all() else 0) <= reached


def _are_messages(calls: CallColumns) -> npt.NDArray[np.bool_]:
    return np.isin(calls.func, [at for at, name in enumerate(calls.functions) if name in _MESSAGES])


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


def _dump(rank: int, parts: Sequence[tuple[CommCalls, LocalGroup, int]], newest: int | None) -> Dump:
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
        columns["call"].append(numbers)
        columns["group"].append(np.full(len(calls), index, np.int16))
        whole = newest is None and part.complete
        columns["seq"].append(np.maximum(_numbers(calls, whole=whole), 1).astype(np.int32))
        columns["line"].append(calls.line.astype(np.int32))
        columns["state"].append(np.where(_joined(calls, reached, whole=whole), COMPLETED, SCHEDULED).astype(np.int8))
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
