"""What the guard costs: short blocks of steps with it and without it in turn, in one run.

    torchrun --nproc_per_node=2 benchmarks/guard_overhead.py [--device cpu|cuda] [--width N] [--seconds N]
    torchrun --nproc_per_node=1 benchmarks/guard_overhead.py --device cuda    # one rank that has the GPU to itself

Prints one JSON text: milliseconds of a step without the guard, what it adds, and the 95 % interval of the difference.
Blocks come as off, on, on, off, so that a drift weighs on both alike; each such four is one difference, and the
interval is that of their mean. `trimmed` leaves a fifth of them out at either end.

On a CPU the time is the CPU time of the process, all threads, as the mean of the ranks: a busy machine blurs it less
than wall time. On a GPU it is the device's own clock between two marks in its stream, and nothing is waited for in
between. A single rank measures what a rank does, without another one on the same GPU. The first steps, in which the
guard measures how often it may look, don't count. `memory_mb` is what the process holds more once the guard is at work
than before its first look, with what it imports; `device_mb` the same on the GPU, `device_peak_mb` with what lives for
a moment (the slices).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import math
import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from whichrank.worker.guard import arrival

FEWEST, MOST, WARM = 2, 24, 20
"""Steps of a block, and before anything counts."""
STUDENT = {4: 2.776, 9: 2.262, 19: 2.093, 29: 2.045, 59: 2.0}
"""Quantiles for 95 %, by degrees of freedom."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=FEWEST, help="of a block, at least")
    given = parser.parse_args()
    rank = int(os.environ["RANK"])
    if given.device == "cuda":
        os.environ.setdefault("NCCL_HOSTID", f"bench{rank}")
        torch.cuda.set_device(0)
    torch.set_num_threads(1)
    folder = os.environ.get("GUARD_FOLDER") or f"{tempfile.gettempdir()}/guard-overhead-{os.environ['MASTER_PORT']}"
    Path(folder).mkdir(exist_ok=True)
    torch.optim.AdamW([torch.zeros(1)])  # what an optimizer imports is the job's own
    before = resident()
    guard = arrival.begin(folder, f"rank{rank}", "on")
    guard.imported = resident() - before
    dist.init_process_group("nccl" if given.device == "cuda" else "gloo")
    run(given, rank, guard, Path(folder))
    dist.destroy_process_group()


def run(given: argparse.Namespace, rank: int, guard, folder: Path) -> None:
    cuda = given.device == "cuda"
    layers = [layer for _ in range(given.layers) for layer in (nn.Linear(given.width, given.width), nn.GELU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(given.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(given.batch, given.width, generator=generator).to(given.device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()

    guard.paused = True
    for _ in range(WARM):
        step()
    held = [resident(), *on_device(cuda)]
    guard.paused = False
    if dist.get_world_size() == 1:
        guard._begin()  # noqa: SLF001 - alone it would not: it does what one rank of many does
    for _ in range(WARM):
        step()
    grown = [now - then for now, then in zip([resident(), *on_device(cuda)], held, strict=True)]
    plan = guard.plan
    cycle = math.lcm(plan.gradients, plan.slices)
    steps = max(given.steps, cycle if cycle <= MOST else max(plan))  # each block has the same looks
    began = time.perf_counter()
    for _ in range(8):
        step()
    if cuda:
        torch.cuda.synchronize()
    fours = [max(3, round(given.seconds / (4 * steps * (time.perf_counter() - began) / 8)))]
    dist.broadcast_object_list(fours, 0)
    seconds = measured(step, guard, steps, fours[0], cuda)
    if not cuda:
        seconds = mean_of_ranks(seconds)
    if rank == 0:
        print(json.dumps({**told(seconds), "steps_of_a_block": steps, "ranks": dist.get_world_size(),
                          "parameters": sum(p.numel() for p in model.parameters()),
                          "memory_mb": round((guard.imported + grown[0]) / 1e6, 2),
                          "imported_mb": round(guard.imported / 1e6, 2), "device_mb": round(grown[1] / 1e6, 2),
                          "device_peak_mb": round(grown[2] / 1e6, 2),
                          "plan": plan._asdict(), "problems": guard.problems,
                          "parts": next(iter(guard.watched.values())).layout.parts}), flush=True)  # fmt: skip
    dist.barrier()
    for path in folder.glob(f"rank{rank}*"):
        path.unlink()


def measured(step, guard, steps: int, fours: int, cuda: bool) -> list[tuple[float, float, float, float]]:
    """Seconds of a step, by blocks: off, on, on, off."""
    marks = [mark(cuda)]
    for _ in range(fours):
        for on in (False, True, True, False):
            guard.paused = guard.collectives.muted = not on
            for _ in range(steps):
                step()
            marks.append(mark(cuda))
    guard.paused = guard.collectives.muted = False
    if cuda:
        torch.cuda.synchronize()
        blocks = [one.elapsed_time(other) / 1000 for one, other in pairwise(marks)]
    else:
        blocks = [other - one for one, other in pairwise(marks)]
    each = [block / steps for block in blocks]
    return [tuple(each[at : at + 4]) for at in range(0, len(each), 4)]


def mean_of_ranks(own: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    every: list = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return [tuple(map(statistics.mean, zip(*ranks, strict=True))) for ranks in zip(*every, strict=True)]


def mark(cuda: bool):
    if not cuda:
        return time.process_time()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def on_device(cuda: bool) -> tuple[int, int]:
    """Bytes that are allocated now, and the most that were beside what a step itself needs."""
    if not cuda:
        return 0, 0
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()


def resident() -> int:
    """Bytes of this process in memory, without what the allocator keeps for later."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def told(fours: list[tuple[float, float, float, float]]) -> dict[str, object]:
    base = statistics.median(s for off, _, _, last in fours for s in (off, last))
    differences = sorted(100 * ((b + c) - (a + d)) / 2 / base for a, b, c, d in fours)
    cut = len(differences) // 5
    inner = differences[cut : len(differences) - cut]
    ends = [differences[cut]] * cut + inner + [differences[-cut - 1]] * cut
    middle, trimmed = statistics.mean(differences), statistics.mean(inner)
    wide = quantile(len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    # Yuen: the deviation of the values with their ends drawn in, over the share that is left.
    share = len(inner) / len(differences)
    narrow = quantile(len(inner) - 1) * statistics.stdev(ends) / (share * len(differences) ** 0.5)
    return {
        "step_ms": round(1000 * base, 3), "added_pct": round(middle, 3),
        "interval_pct": [round(middle - wide, 3), round(middle + wide, 3)], "trimmed_pct": round(trimmed, 3),
        "trimmed_interval_pct": [round(trimmed - narrow, 3), round(trimmed + narrow, 3)],
        "median_pct": round(statistics.median(differences), 3), "fours": len(fours),
    }  # fmt: skip


def quantile(freedom: int) -> float:
    return next((value for least, value in sorted(STUDENT.items(), reverse=True) if freedom >= least), 4.3)


if __name__ == "__main__":
    main()
