"""A flight-recorder dump as a profile that holds collectives alone: when this rank came to each, and how long it took.

The recorder notes when a collective was called. How long it ran it knows only with TORCH_NCCL_ENABLE_TIMING=1; the end
that its watchdog noticed is up to a second late and is not used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichrank.facts.collective_names import operation
from whichrank.records.dump import Call, Dump, LocalGroup
from whichrank.records.profiles.trace import COMMUNICATION, MARK, Collective, Lane, Longs, Spans, Trace

FEWEST_ROUNDS = 3
ALIKE = 0.9
"""Share of the calls that must repeat for a sequence to have a period."""
LONGEST_PERIOD = 512
# torch's scalar types as the recorder writes them.
BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
}  # fmt: skip


def trace_of(dump: Dump, reader: str) -> Trace | None:
    """The dump's collectives in order; None where it holds none with a time."""
    joint = np.array([not call.p2p for call in dump.calls], np.bool_)
    rows = np.flatnonzero((dump.created_ns > 0) & joint[dump.call]) if len(dump) else np.empty(0, np.int64)
    rows = rows[np.argsort(dump.created_ns[rows], kind="stable")]
    if not len(rows):
        return None
    timed = np.isfinite(dump.duration_ms[rows]) & (dump.duration_ms[rows] >= 0)
    length = np.where(timed, dump.duration_ms[rows].astype(np.float64), 0.0) * 1e6
    start = dump.created_ns[rows].astype(np.int64)
    base = int(start[0])
    start = start - base
    known: dict[Collective, int] = {}
    noted = zip(dump.group[rows].tolist(), dump.call[rows].tolist(), dump.seq[rows].tolist(), strict=True)
    what = [
        known.setdefault(_collective(dump.groups[group], dump.calls[call], seq), len(known))
        for group, call, seq in noted
    ]
    count = len(rows)
    device = Spans(
        start, start + np.rint(length).astype(np.int64), np.zeros(count, np.int32), np.zeros(count, np.int32),
        np.full(count, COMMUNICATION, np.int8), np.full(count, -1, np.int64), np.array(what, np.int32),
    )  # fmt: skip
    ids, begins = _rounds(dump, rows, start)
    members = [group.members for group in dump.groups if group.members]
    return Trace(
        source=dump.source,
        device=device,
        host=_marks(begins),
        names=["flight recorder", *(f"ProfilerStep#{number}" for number in ids[:-1].tolist())],
        lanes=[Lane("collectives", "flight recorder", device=True), Lane("steps", "flight recorder", device=False)],
        collectives=list(known),
        rank=dump.rank,
        world=max(map(len, members)) if members else None,
        backend=next((call.backend for call in dump.calls if call.backend), ""),
        host_name=dump.host or "",
        base_ns=base,
        events=count,
        reader=reader,
        collectives_only=True,
        ends_known=bool(timed.mean() > 0.5),
    )


def _collective(group: LocalGroup, call: Call, seq: int) -> Collective:
    sent = _bytes(call.input_sizes, call.input_dtypes)
    received = _bytes(call.output_sizes, call.output_dtypes)
    members = group.members or None
    return Collective(
        operation(call.op), sent, received, group.name, group.desc, len(members) if members else None, members, seq
    )


def _bytes(sizes: Sequence[Sequence[int]], types: Sequence[str]) -> int | None:
    total = 0
    for index, shape in enumerate(sizes):
        kind = types[index] if index < len(types) else types[0] if types else ""
        elements = 1
        for n in shape:
            elements *= n if 0 <= n < 1 << 40 else 0
        total += elements * BYTES.get(kind, 4)
    return total if 0 < total < 1 << 62 else None


def _rounds(dump: Dump, rows: Longs, start: Longs) -> tuple[Longs, Longs]:
    """Numbers and beginnings of the steps, and one more for the end of the last.

    A training loop makes the same calls again and again. The sequence of the busiest group tells its period; its own
    sequence numbers, which all ranks share, say where steps begin.
    """
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    busiest = int(np.bincount(dump.group[rows]).argmax())
    mine = rows[dump.group[rows] == busiest]
    call = dump.call[mine]
    looks: dict[tuple[object, ...], int] = {}
    kinds = [looks.setdefault((c.op, c.input_sizes, c.input_dtypes), len(looks)) for c in dump.calls]
    period = _period(np.array(kinds, np.int64)[call])
    if period is None:
        return nothing
    number = dump.seq[mine].astype(np.int64) // period
    first = np.flatnonzero(np.diff(number) > 0) + 1  # what comes before is a part of a step
    if len(first) < 2:
        return nothing
    when = start[np.isin(rows, mine)][first]
    return number[first], np.maximum.accumulate(when)


def _period(sequence: Longs) -> int | None:
    """The shortest distance at which the sequence repeats."""
    for period in range(1, min(LONGEST_PERIOD, len(sequence) // FEWEST_ROUNDS) + 1):
        if (sequence[period:] == sequence[:-period]).mean() >= ALIKE:
            return period
    return None


def _marks(begins: Longs) -> Spans:
    count = max(0, len(begins) - 1)
    return Spans(
        begins[:-1][:count], begins[1:][:count], np.arange(1, count + 1, dtype=np.int32), np.ones(count, np.int32),
        np.full(count, MARK, np.int8), np.full(count, -1, np.int64), np.full(count, -1, np.int32),
    )  # fmt: skip
