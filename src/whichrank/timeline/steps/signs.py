"""Signs of settings that a profile shows, as plain counts per step; advice and rules judge them."""

from __future__ import annotations

import re

import numpy as np

from whichrank.facts.collective_names import operation
from whichrank.records.profiles.trace import COMMUNICATION, MARK, MEMORY, OPERATOR, RUNTIME, Spans, Trace
from whichrank.timeline.steps.intervals import among, distinct, median, union
from whichrank.timeline.steps.windows import Windows

# Names by torch's reducer (torch/csrc/distributed/c10d/reducer.cpp), operators and marks.
NAMES = {
    "unused_searches": r"ddp\.reducer::search_unused_parameters",
    "bucket_copies": r"reducer::copy_bucket_to_grad",  # mul_out is there with views, too
    "forwards": r"^DistributedDataParallel\.forward$",
    "optimizer_steps": r"^Optimizer\.step#",
    "items": r"^aten::(?:_local_scalar_dense)$",
    "sync_batch_norms": r"SyncBatchNorm",
    "loader_calls": r"^enumerate\(DataLoader\)",
    "fsdp_unshards": r"^(?:FSDP::all_gather|FSDP\.|FullyShardedDataParallel\.)",
    "deepspeed": r"deepspeed|DeepSpeed",
}
TIMED = ("unused_searches", "bucket_copies", "items")
_PATTERNS = {key: re.compile(text) for key, text in NAMES.items()}
_PAGEABLE = re.compile(r"Memcpy (?:HtoD|DtoH) .*Pageable")
_LAUNCH = re.compile(r"launch", re.IGNORECASE)


def signs_of(trace: Trace, launched: np.ndarray[tuple[int], np.dtype[np.int64]], windows: Windows) -> dict[str, float]:
    """Counts per step (or nanoseconds, where the name ends so)."""
    steps = max(1, len(windows.ids))
    host, found = trace.host, {}
    told = among(host.kind, (MARK, OPERATOR))
    counts = np.bincount(host.name[told], minlength=len(trace.names)) if len(trace.names) else np.zeros(0, np.int64)
    used = [(index, trace.names[index][:160]) for index in np.flatnonzero(counts).tolist()]
    for key, pattern in _PATTERNS.items():
        chosen = [index for index, name in used if pattern.search(name)]
        found[key] = float(counts[chosen].sum()) / steps if chosen else 0.0
        if key in TIMED and chosen:
            mine = host.where(told & among(host.name, chosen))
            found[f"{key}_ns"] = float(union(mine.start, mine.end).total) / steps
    found["reducing_forwards"] = _reducing(trace, launched) / steps
    moves = trace.device.of(MEMORY)
    pageable = [index for index, name in enumerate(trace.names) if _PAGEABLE.match(name)]
    mine = moves.where(among(moves.name, pageable))
    found["pageable_copies"] = len(mine) / steps
    found["pageable_ns"] = float((mine.end - mine.start).sum()) / steps
    found.update(_launches(trace, launched, steps))
    if trace.step_s is not None:
        found["unrecorded_step_ns"], found["recorded_step_ns"] = (1e9 * one for one in trace.step_s)
    return found


def _reducing(trace: Trace, launched: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Forward passes of DDP after which, and before the next one, gradients are all-reduced."""
    host, device = trace.host, trace.device
    passes = [i for i, name in enumerate(trace.names) if _PATTERNS["forwards"].search(name[:160])]
    begins = np.sort(host.start[among(host.name, passes)]) if passes else np.empty(0, np.int64)
    if len(begins) < 2:
        return 0
    on_device, on_host = device.kind == COMMUNICATION, host.kind == COMMUNICATION
    names = np.concatenate((device.name[on_device], host.name[on_host]))
    noted = np.concatenate((device.comm[on_device], host.comm[on_host]))
    begun = np.concatenate((launched[on_device], host.start[on_host]))
    kinds = {(n, c): _op(trace, n, c) for n, c in set(zip(names.tolist(), noted.tolist(), strict=True))}
    chosen = np.array(
        [kinds[key] == "all_reduce" for key in zip(names.tolist(), noted.tolist(), strict=True)], np.bool_
    )
    place = np.searchsorted(begins, begun[chosen], side="right") - 1 if len(begun) else np.empty(0, np.int64)
    return len(distinct(place[place >= 0]))


def _op(trace: Trace, name: int, noted: int) -> str:
    return (trace.collectives[noted].op if noted >= 0 else "") or operation(trace.names[name])


def _launches(trace: Trace, launched: np.ndarray[tuple[int], np.dtype[np.int64]], steps: int) -> dict[str, float]:
    """How far the host runs ahead of the device, and how small the kernels are."""
    device = trace.device
    if not len(device):
        return {}
    delay = device.start - launched
    host, running = trace.host, trace.host.kind == RUNTIME
    launching = [index for index in distinct(host.name[running]) if _LAUNCH.search(trace.names[index][:160])]
    mine: Spans = host.where(running & among(host.name, launching))
    return {
        "kernels": len(device) / steps,
        "kernel_ns": float(median(device.end - device.start)),
        "ahead_ns": float(median(delay)),
        "launch_ns": float(median(mine.end - mine.start)) if len(mine) else 0.0,
    }
