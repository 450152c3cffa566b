"""Profiles made for tests, in Kineto's own layout: constructed, and exact to the nanosecond.

`Rank` is a little device: kernels run one after another on its computing stream, collectives on a stream of their own,
and a kernel may wait for a collective. Several ranks share their collectives through `meet`.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Rank:
    """One rank's events; times in microseconds."""

    rank: int
    world: int = 1
    clock: float = 0.0
    """What its clock is ahead."""
    host: str = ""
    now: float = 1000.0
    events: list[dict[str, Any]] = field(default_factory=list)
    number: int = 100

    def kernel(
        self, length: float, name: str = "gemm", stream: int = 7, start: float | None = None, **args: Any
    ) -> None:
        """A kernel that was launched long before it runs."""
        begun = self.now if start is None else start
        self.number += 1
        self._launch(begun - 500)
        args = {"stream": stream, "device": 0, "correlation": self.number, **args}
        self._add("kernel", name, begun, length, pid=0, tid=stream, args=args)
        if start is None:
            self.now += length

    def host_time(self, length: float, name: str | None = None, cat: str = "user_annotation") -> None:
        """The device idles while the host does something; what follows is launched only then."""
        if name is not None:
            self._add(cat, name, self.now, length)
        self.now += length
        self.late_launch = True

    late_launch: bool = False

    def _launch(self, moment: float) -> None:
        if self.late_launch:
            moment, self.late_launch = self.now - 1, False
        self._add("cuda_runtime", "cudaLaunchKernel", moment, 0.5, args={"correlation": self.number})

    def step(self, number: int, start: float, end: float) -> None:
        self._add("user_annotation", f"ProfilerStep#{number}", start, end - start)

    def _add(
        self, cat: str, name: str, start: float, length: float, pid: int = 42, tid: int = 42, args: Any = None
    ) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": round(start + self.clock, 3)}
        self.events.append({**event, "dur": round(length, 3), "args": args or {}})

    def document(self) -> dict[str, Any]:
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        extra = {"host_name": self.host} if self.host else {}
        return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],
                "distributedInfo": info, **extra, "traceEvents": self.events}  # fmt: skip

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rank-{self.rank}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(self.document(), indent=1).encode(), 1))
        return path


def meet(ranks: list[Rank], length: float, *, wait: bool = True, name: str = ALL_REDUCE, **args: Any) -> None:
    """A collective of these ranks: each is there when its work so far is done; all leave together.

    With `wait` the next kernel of each runs after it; otherwise computation goes on beside it.
    """
    start = {one.rank: max(one.now, getattr(one, "free", 0.0)) for one in ranks}
    end = max(start.values()) + length
    group = {"Process Group Name": "0", "Group size": len(ranks), "Process Group Ranks": str([r.rank for r in ranks])}
    for one in ranks:
        told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 10**6, "Out msg nelems": 10**6}
        one.kernel(end - start[one.rank], name, 20, start[one.rank], **{**told, **group, **args})
        one.free = end  # type: ignore[attr-defined]
        if wait:
            one.now = end


def job(
    folder: Path, world: int = 4, steps: int = 4, extra: Any = None, clocks: Any = None, wait: bool = True
) -> list[Rank]:
    """Equal ranks: kernels, an all-reduce and an optimizer kernel per step; `extra(rank, step)` comes first."""
    ranks = [Rank(r, world, (clocks or {}).get(r, 0.0)) for r in range(world)]
    for step in range(steps):
        begun = {one.rank: one.now for one in ranks}
        for one in ranks:
            one.kernel(100, "embedding")
            if extra is not None:
                extra(one, step)
            for _ in range(3):
                one.kernel(1000)
        meet(ranks, 500, wait=wait)
        for one in ranks:
            if not wait:
                one.kernel(3000, "other work")
                one.now = max(one.now, one.free)  # type: ignore[attr-defined]
            one.kernel(200, "adam")
            one.step(10 + step, begun[one.rank] - 600, one.now - 610)
    for one in ranks:
        one.write(folder)
    return ranks
