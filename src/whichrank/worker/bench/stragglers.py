"""Which rank is slow before the job has begun: each rank's own compute, memory and copies, and who arrives last.

The late rank waits least: the time inside a barrier is shortest for the one that everybody waits for. So a rank is
judged by the time of its own work, and by how long it waits, never by a long barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def measure(device: Any, rounds: int) -> dict[str, list[list[float]]]:
    """For each kind of work a list per rank with the seconds of every round; all ranks work at the same time."""
    found: dict[str, list[list[float]]] = {}
    for name, work in _works(device).items():
        for _ in range(3):
            work()
        _wait_for(device)
        own: list[float] = []
        waited: list[float] = []
        for _ in range(rounds):
            dist.barrier()
            began = time.perf_counter()
            work()
            _wait_for(device)
            done = time.perf_counter()
            dist.barrier()
            _wait_for(device)
            own.append(done - began)
            waited.append(time.perf_counter() - done)
        found[name] = _gathered(own)
        if name == "compute":
            found["wait"] = _gathered(waited)
    return found


def _works(device: Any) -> dict[str, Callable[[], Any]]:
    size = 4096 if device.type == "cuda" else 256
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    big = torch.zeros((256 << 20 if device.type == "cuda" else 16 << 20) // 4, device=device)
    works: dict[str, Callable[[], Any]] = {"compute": lambda: a @ b, "memory": big.clone}
    if device.type == "cuda":
        host = torch.zeros(64 << 20, dtype=torch.uint8).pin_memory()
        there = torch.empty_like(host, device=device)
        works["host_to_device"] = lambda: there.copy_(host, non_blocking=True)
    else:
        works["compute"] = lambda: [a @ b for _ in range(8)]
    return works


def _wait_for(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _gathered(own: list[float]) -> list[list[float]]:
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    return everyone
