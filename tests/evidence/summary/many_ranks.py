"""Summaries of a simulated job of any size: data-parallel and tensor-parallel groups, one rank that stops early."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from whichrank.evidence.summary.file import Part, Summary, pack
from whichrank.model.contracts import Item, Reading
from whichrank.records.dump import COMPLETED, SCHEDULED, Call, Dump, Frame, LocalGroup

PER_NODE, TENSOR, STEPS = 8, 8, 12
BEGAN = 1_763_000_000_000_000_000


def call(name: str, line: int, size: int) -> Call:
    stack = tuple(Frame(f"{name}_{depth}", f"/srv/app/train_{depth}.py", line + depth) for depth in range(6))
    return Call(
        name, "nccl", ((size,),), ((size,),), ("Float",), ("Float",), stack, "main", p2p=False, timeout_ms=600_000
    )


CALLS = [call("all_reduce", 118, 1 << 20), call("all_gather", 131, 4096), call("reduce_scatter", 140, 8192)]


@cache
def everyone(world: int) -> tuple[int, ...]:
    return tuple(range(world))


def dump(rank: int, world: int, culprit: int, seed: int = 0) -> Dump:
    """Each step: two calls in the tensor group, one in the world. The culprit never issues its last world call."""
    base = rank - rank % TENSOR
    groups = [
        LocalGroup(0, "0", "default_pg", everyone(world)),
        LocalGroup(1, f"tp{base}", "tp", tuple(range(base, min(base + TENSOR, world)))),
    ]
    count = 3 * STEPS
    number = np.arange(count)
    state = np.full(count, COMPLETED, np.int8)
    state[-1] = SCHEDULED
    keep = slice(0, count - 1 if rank == culprit else count)
    noise = np.random.default_rng(rank + seed).integers(0, 200_000, count)
    created = BEGAN + number * 30_000_000 + noise
    world_call = number % 3 == 2
    columns = {
        "record_id": number.astype(np.int32), "group": np.where(world_call, 0, 1).astype(np.int16),
        "call": np.array([1, 2, 0], np.int32)[number % 3],
        "seq": np.where(world_call, number // 3, number - number // 3).astype(np.int32) + 1,
        "p2p_seq": np.zeros(count, np.int32), "created_ns": created,
        "completed_ns": np.where(state == COMPLETED, created + 2_000_000 + noise, 0),
        "duration_ms": np.full(count, np.nan, np.float32), "state": state, "retired": state == COMPLETED,
    }  # fmt: skip
    return Dump(
        f"fr_trace_{rank}", rank, (2, 10), "nccl", groups, CALLS, {}, has_frames=True,
        newest_ns=BEGAN + 10**9, mtime_ns=BEGAN + 700 * 10**9,
        **{name: column[keep] for name, column in columns.items()},
    )  # fmt: skip


def write(folder: Path, world: int, culprit: int) -> int:
    """A summary per node; returns the bytes of all of them."""
    total = 0
    for first in range(0, world, PER_NODE):
        parts = []
        for rank in range(first, min(first + PER_NODE, world)):
            made = dump(rank, world, culprit)
            item = Item(Path(made.source), f"nodes/node{first // PER_NODE}/{made.source}", 100_000, made.mtime_ns)
            parts.append(Part(item, [("flight_recorder", Reading([made]))]))
        data = pack(Summary(parts))
        (folder / f"node{first // PER_NODE}.whichrank").write_bytes(data)
        total += len(data)
    return total
