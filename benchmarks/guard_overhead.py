"""What the guard costs: blocks of steps with it and without it in turn, in one run.

    torchrun --nproc_per_node=2 benchmarks/guard_overhead.py [--device cpu|cuda] [--width N] [--blocks N]

Prints one JSON text: seconds of a step without the guard, what it adds, and the 95 % interval of the difference. On a
CPU the time is that of the process's CPU, all threads, so that a busy machine does not blur it; on a GPU it is the
time of the step by the clock. The first steps, in which the guard measures how often it may look, don't count.
`memory_mb` is what the process holds more once the guard is at work than before its first look, with what it imports.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from whichrank.worker.guard import arrival

STEPS, WARM = 8, 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=16)
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
    before = resident()
    guard.paused = False
    for _ in range(WARM):
        step()
    memory = guard.imported + resident() - before
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for block in range(2 * given.blocks):
        on = bool((block + block // 2) % 2)  # off on on off …: a drift weighs on both alike
        guard.paused = guard.collectives.muted = not on
        before = clock(given.device)
        for _ in range(STEPS):
            step()
        seconds[on].append((clock(given.device) - before) / STEPS)
    guard.paused = guard.collectives.muted = False
    if rank == 0:
        print(json.dumps({**told(seconds), "parameters": sum(p.numel() for p in model.parameters()),
                          "memory_mb": round(memory / 1e6, 2),
                          "imported_mb": round(guard.imported / 1e6, 2),
                          "plan": guard.plan._asdict(), "problems": guard.problems,
                          "parts": next(iter(guard.watched.values())).layout.parts}), flush=True)  # fmt: skip
    dist.barrier()
    for path in folder.glob(f"rank{rank}*"):
        path.unlink()


def resident() -> int:
    """Bytes of this process in memory, without what the allocator keeps for later."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def told(seconds: dict[bool, list[float]]) -> dict[str, object]:
    differences = [on - off for on, off in zip(seconds[True], seconds[False], strict=True)]
    base, middle = statistics.median(seconds[False]), statistics.mean(differences)
    error = 1.96 * statistics.stdev(differences) / len(differences) ** 0.5
    return {
        "step_ms": round(1000 * base, 3), "added_ms": round(1000 * middle, 4),
        "added_pct": round(100 * middle / base, 3),
        "interval_pct": [round(100 * (middle - error) / base, 3), round(100 * (middle + error) / base, 3)],
        "median_added_pct": round(100 * statistics.median(differences) / base, 3), "blocks": len(differences),
    }  # fmt: skip


if __name__ == "__main__":
    main()
