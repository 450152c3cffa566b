"""Dumps written down by hand: a few operations, exactly as a test needs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from whichrank.records.dump import COMPLETED, SCHEDULED, STARTED, Call, Dump, Frame, LocalGroup
from whichrank.timeline.collectives.lineup import Lineup, line_up

START_NS = 1_790_000_000_000_000_000
MILLISECOND = 1_000_000


class Did(Struct, frozen=True):
    """One entry: the group's name, the operation, its number there, and how it went."""

    group: str
    op: str
    seq: int
    done: bool = True
    started: bool = False
    numel: int = 8
    numel_out: int | None = None
    """Of what it gets, where that is not as much."""
    dtype: str = "Float"
    line: int = 10
    function: str = "main"
    called_from: int | None = None
    """The line of the function `main` that called it."""
    at_ms: float | None = None
    took_ms: float = 1.0


def call(did: Did, backend: str = "nccl") -> Call:
    p2p = did.op.startswith(("send", "recv"))
    frames = [Frame(did.function, "/srv/job/train.py", did.line)]
    if did.called_from is not None:
        frames.append(Frame("main", "/srv/job/train.py", did.called_from))
    sizes, dtypes = ((did.numel,),), (did.dtype,)
    outputs = sizes if did.numel_out is None else ((did.numel_out,),)
    return Call(did.op, backend, sizes, outputs, dtypes, dtypes, tuple(frames), "main", p2p, 600_000)


def dump(
    rank: int | None,
    groups: dict[str, tuple[int, ...] | None],
    entries: Sequence[Did],
    *,
    backend: str = "nccl",
    first: int = 0,
    offset_ns: int = 0,
    descs: dict[str, str] | None = None,
) -> Dump:
    """The dump of a rank; entries are a millisecond apart unless they say when."""
    names = list(groups)
    known = {name: "default_pg" if name == "0" else (descs or {}).get(name, "tp") for name in names}
    local = [LocalGroup(i, name, known[name], groups[name]) for i, name in enumerate(names)]
    calls = list(dict.fromkeys(call(did, backend) for did in entries))
    at = [did.at_ms if did.at_ms is not None else float(i) for i, did in enumerate(entries)]
    created = [START_NS + offset_ns + int(ms * MILLISECOND) for ms in at]
    ends = [c + int(did.took_ms * MILLISECOND) for c, did in zip(created, entries, strict=True)]
    gloo = backend == "gloo"
    states = [COMPLETED if did.done and not gloo else STARTED if did.started else SCHEDULED for did in entries]
    done = [end if did.done and not gloo else 0 for end, did in zip(ends, entries, strict=True)]
    count = len(entries)
    return Dump(
        source=f"trace_{rank}" if rank is not None else "trace",
        rank=rank,
        version=(2, 10),
        comm_lib="" if gloo else "2.28.9",
        groups=local,
        calls=calls,
        status={},
        has_frames=True,
        newest_ns=max([*created, *done], default=0),
        capacity_wrapped=first > 0,
        record_id=np.arange(first, first + count, dtype=np.int32),
        group=np.array([names.index(did.group) for did in entries], np.int16),
        call=np.array([calls.index(call(did, backend)) for did in entries], np.int32),
        seq=np.array([did.seq for did in entries], np.int32),
        p2p_seq=np.zeros(count, np.int32),
        created_ns=np.array(created, np.int64),
        completed_ns=np.array(done, np.int64),
        duration_ms=np.full(count, np.nan, np.float32),
        state=np.array(states, np.int8),
        retired=np.array([did.done for did in entries], np.bool_),
    )


def lined_up(*dumps: Dump) -> Lineup:
    made = line_up(dumps)
    assert made is not None
    return made


def steps(count: int, *, group: str = "0", open_last: bool = False) -> list[Did]:
    """A loop of an all_reduce and a reduce_scatter."""
    ops = [Did(group, ("all_reduce", "reduce_scatter")[n % 2], n + 1, line=10 + n % 2) for n in range(count)]
    if open_last:
        ops[-1] = Did(group, ops[-1].op, ops[-1].seq, done=False, line=ops[-1].line)
    return ops
