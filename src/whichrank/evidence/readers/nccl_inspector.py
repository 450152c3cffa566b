"""Logs of NCCL's Inspector (2.28 and later): one JSON object per finished collective of one rank.

The Inspector writes when a collective's record was dumped and how long it took; with verbose events also when it
began. A log without those still tells sizes and bandwidths.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from whichrank.evidence.trace_files import pieces
from whichrank.facts.collective_names import operation
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.profiles.trace import COMMUNICATION, Collective, Lane, Spans, Trace

NAME = "nccl_inspector"
MOST_LINES = 5_000_000
LONGEST_LINE = 1 << 20


def sniff(head: bytes, name: str) -> bool:
    """True for lines of JSON that carry a collective's performance."""
    del name
    return b'"coll_perf"' in head and b'"header"' in head


def read(item: Item) -> Reading:
    """The collectives of one rank, one after another."""
    rows: list[tuple[int, int, int, int]] = []
    known: dict[Collective, int] = {}
    broken, host = 0, ""
    rank: int | None = None
    world: int | None = None
    for line in _lines(item):
        try:
            found: Any = msgspec.json.decode(line)
            header, metadata, perf = found["header"], found.get("metadata") or {}, found["coll_perf"]
            what, start, end = _collective(header, metadata, perf)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError):
            broken += 1
            continue
        # The rank is the communicator's; the largest communicator is the whole job.
        members = header.get("n_ranks")
        if isinstance(members, int) and isinstance(header.get("rank"), int) and members > (world or 0):
            rank, world = header["rank"], members
        host = str(metadata.get("hostname") or host)[:200]
        rows.append((start, end, known.setdefault(what, len(known)), len(rows)))
    if not rows:
        raise UnreadableError(f"{item.label}: no collective of NCCL's Inspector in it")
    table = np.array(sorted(rows), np.int64)
    count = len(table)
    spans = Spans(
        table[:, 0], table[:, 1], np.zeros(count, np.int32), np.zeros(count, np.int32),
        np.full(count, COMMUNICATION, np.int8), np.full(count, -1, np.int64), table[:, 2].astype(np.int32),
    )  # fmt: skip
    trace = Trace(
        source=item.label, device=spans, host=Spans(), names=["NCCL Inspector"],
        lanes=[Lane("NCCL", "collectives", device=True)],
        collectives=list(known), rank=rank, world=world, backend="nccl", host_name=host, events=count, reader=NAME,
        collectives_only=True,
    )  # fmt: skip
    note = f"{count:,} collectives" + (f"; {broken:,} lines are none" if broken else "")
    return Reading([trace], "partial" if broken else "complete", note)


def _lines(item: Item) -> Any:
    left, count = b"", 0
    with pieces(item.path) as source:
        for piece in source:
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                if line.strip() and len(line) < LONGEST_LINE and count < MOST_LINES:
                    count += 1
                    yield line
            left = left[-LONGEST_LINE:]
    if left.strip():
        yield left


def _collective(header: dict[str, Any], metadata: dict[str, Any], perf: dict[str, Any]) -> tuple[Collective, int, int]:
    """What it was, and when: by its own events where they were recorded, otherwise by the time of the dump."""
    length = float(perf["coll_exec_time_us"])
    events: Any = perf.get("event_trace_ts") if isinstance(perf.get("event_trace_ts"), dict) else {}
    kernels = [k for k in events.get("kernel_events") or () if isinstance(k, dict) and k.get("kernel_stop_ts")]
    if kernels:
        begun = min(float(k["kernel_start_ts"]) for k in kernels)
        end = max(float(k["kernel_stop_ts"]) for k in kernels)
    elif "coll_start_ts" in events:
        begun = float(events["coll_start_ts"])
        end = begun + length
    else:
        end = float(metadata["dump_timestamp_us"])
        begun = end - length
    if not (0 <= begun <= end < 9e15):
        raise ValueError("times out of range")
    size = perf.get("coll_msg_size_bytes")
    bytes_ = size if isinstance(size, int) and 0 <= size < 1 << 62 else None
    ranks = header.get("n_ranks")
    what = Collective(
        operation(str(perf.get("coll") or "")), bytes_, bytes_, str(header.get("id") or "")[:80], "",
        ranks if isinstance(ranks, int) else None, None,
        perf.get("coll_sn") if isinstance(perf.get("coll_sn"), int) else None,
    )  # fmt: skip
    return what, round(begun * 1000), round(end * 1000)
