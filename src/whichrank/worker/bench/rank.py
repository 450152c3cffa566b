"""The benchmark inside a rank: `python -m whichrank.worker.bench.rank PLAN`, with RANK, WORLD_SIZE and MASTER_ADDR set.

Times are taken with device events on a GPU and with the wall clock on a CPU, over batches of back-to-back calls after a
warm-up. A batch counts with the slowest rank's time; the median of the batches is told, with its spread. Rank 0 prints
one line of JSON per result.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from whichrank.facts.hardware.bandwidth import bandwidths
from whichrank.worker.bench import collectives

_WARM_UP = 3
_BATCH_S = 0.004
"""A batch should last so long: far above the clock's grain and a scheduler's hiccup of one call."""
_BATCHES = (5, 200)
_LONG_S, _FEW = 3.0, 3
"""A call that takes so long is not repeated more often than needed."""
_CHECK_MOST = 64 << 20


class Timing(NamedTuple):
    seconds: float
    spread: float
    """Distance of the quartiles, as a share of the median."""
    batches: int
    calls: int


def measure(prepared: collectives.Prepared, budget_s: float, device: Any) -> Timing:
    """The median time of one call. All ranks must call this together."""
    once = _slowest([_batch(prepared.call, 1, device)], device)[0]
    if once < _LONG_S:
        # The fastest of the warm-up: where one call was disturbed, batches of too few calls would measure the barrier.
        once = min(_slowest([_batch(prepared.call, 1, device) for _ in range(_WARM_UP)], device))
    calls = max(1, min(200, int(_BATCH_S / max(once, 1e-9))))
    least = _BATCHES[0] if once < _LONG_S else _FEW
    batches = max(least, min(_BATCHES[1], int(budget_s / max(once * calls, 1e-9))))
    times = []
    for _ in range(batches):
        prepared.reset()
        dist.barrier()
        times.append(_batch(prepared.call, calls, device) / calls)
    ordered = sorted(_slowest(times, device))
    middle = ordered[len(ordered) // 2] if len(ordered) % 2 else sum(ordered[len(ordered) // 2 - 1 :][:2]) / 2
    quartiles = ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]
    return Timing(middle, quartiles / middle if middle else 0.0, batches, calls)


def _batch(call: Callable[[], None], calls: int, device: Any) -> float:
    if device.type == "cuda":
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - began


def _slowest(times: Sequence[float], device: Any) -> list[float]:
    """Batch by batch the time of the rank that took longest."""
    tensor = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return [float(value) for value in tensor.cpu()]


def run(plan: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Everything that the plan asks for, size by size."""
    backend, device = choose(str(plan.get("backend", "auto")))
    dist.init_process_group(backend, timeout=timedelta(seconds=float(plan.get("timeout_s", 120))))
    world, rank = dist.get_world_size(), dist.get_rank()
    tell({"about": about(backend, device)})
    dtype = getattr(torch, str(plan.get("dtype", "float32")))
    for name in plan["collectives"]:
        for octets in plan["sizes"] if name != "barrier" else [0]:
            tell({"at": [name, int(octets)]})
            result = _one(name, int(octets), dtype, device, float(plan.get("seconds", 0.5)))
            if rank == 0:
                tell({**result, "dtype": str(plan.get("dtype", "float32")), "ranks": world})
            if "error" in result:
                break
    if plan.get("stragglers"):
        from whichrank.worker.bench import stragglers

        tell({"at": ["the search for stragglers", 0]})
        tell({"stragglers": stragglers.measure(device, int(plan.get("rounds", 12)))})
    tell({"done": True})
    dist.barrier()
    dist.destroy_process_group()


def _one(name: str, octets: int, dtype: Any, device: Any, budget_s: float) -> dict[str, Any]:
    why = ""
    try:
        prepared = collectives.prepare(name, octets, dtype, device)
    except (NotImplementedError, RuntimeError) as error:
        why = _first_line(error)
    # Where one rank has no memory for the buffers, the others must not wait for it in the collective.
    if not _all(not why, device):
        return {"collective": name, "bytes": octets, "error": why or "another rank could not prepare it"}
    try:
        correct = _all(prepared.right(), device) if prepared.octets <= _CHECK_MOST or device.type == "cuda" else None
        timing = measure(prepared, budget_s, device)
    except (NotImplementedError, RuntimeError) as error:
        return {"collective": name, "bytes": octets, "error": _first_line(error)}
    algorithm, bus = bandwidths(name, prepared.octets, timing.seconds, dist.get_world_size())
    return {
        "collective": name, "bytes": prepared.octets, "time_us": timing.seconds * 1e6, "spread": timing.spread,
        "batches": timing.batches, "calls": timing.calls, "algbw_gbs": algorithm, "busbw_gbs": bus, "correct": correct,
    }  # fmt: skip


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _all(good: bool, device: Any) -> bool:
    tensor = torch.tensor([int(good)], device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MIN)
    return bool(tensor.item())


def choose(backend: str) -> tuple[str, Any]:
    """NCCL where there are GPUs, unless told otherwise; the GPU of this rank is taken."""
    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    if backend == "nccl":
        if not torch.cuda.is_available() or not dist.is_nccl_available():
            raise RuntimeError(f"NCCL needs GPUs, and torch {torch.__version__} sees none on {socket.gethostname()}")
        local, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        index = local % max(1, count)
        if local >= count and "NCCL_HOSTID" not in os.environ:
            # More ranks than GPUs: NCCL lets ranks share one only if they look like ranks of different hosts.
            os.environ["NCCL_HOSTID"] = f"{socket.gethostname()}-{local // max(1, count)}"
        torch.cuda.set_device(index)
        return backend, torch.device("cuda", index)
    torch.set_num_threads(1)
    return backend, torch.device("cpu")


def about(backend: str, device: Any) -> dict[str, Any]:
    """The machine as the results need it; of every rank its host."""
    hosts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    library: Any = torch.cuda.nccl
    nccl = ".".join(map(str, library.version())) if backend == "nccl" else None
    return {
        "backend": backend, "torch": torch.__version__, "nccl": nccl, "hosts": hosts,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("NCCL_", "GLOO_", "TORCH_GLOO"))},
    }  # fmt: skip


def _end_with_the_parent() -> None:
    """A launcher may be killed in any way; ranks that wait for each other would stay."""
    import ctypes
    import signal

    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def main() -> int:
    plan = json.loads(sys.argv[1])
    _end_with_the_parent()
    # What libraries print must not get between the results.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        if os.environ.get("RANK") == "0":
            answers.write(json.dumps(line) + "\n")

    try:
        run(plan, tell)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"rank {os.environ.get('RANK')}: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
