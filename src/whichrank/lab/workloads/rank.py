"""One rank of a drill's job: its place in the world, and the points at which a fault may act."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from whichrank.lab.workloads.plan import Plan


class Rank:
    """Given to the workload and to the fault; `torch` and `dist` are here for faults, which import neither."""

    torch = torch
    dist = dist

    def __init__(self, folder: Path) -> None:
        document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        self.folder = folder
        self.plan = Plan(**document["plan"])
        self.rank = int(os.environ["RANK"])
        self.world = self.plan.world
        self.step = -1
        self.device = torch.device("cuda", 0) if self.plan.backend == "nccl" else torch.device("cpu")
        if self.device.type == "cuda":
            # NCCL refuses two ranks on one GPU of one host; ranks of different hosts are told apart by this.
            os.environ.setdefault("NCCL_HOSTID", f"drill{self.rank}")
        self._fault = load(folder / "code" / "fault.py") if document["inside"] else None
        self._progress = os.open(folder / "progress" / str(self.rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.note_progress()

    @property
    def guilty(self) -> bool:
        """Whether this is the rank that the plan names."""
        return self.rank == self.plan.rank

    @property
    def due(self) -> bool:
        """Whether the step of the plan has come."""
        return self.step == self.plan.step

    def at(self, point: str, value: Any = None) -> Any:
        """A point of the workload: gives back the value, or what the fault makes of it."""
        if self._fault is None:
            return value
        changed = self._fault.inside(self, point, value)
        return value if changed is None else changed

    def strike(self) -> None:
        """The fault begins now; the first to say so counts."""
        try:
            descriptor = os.open(self.folder / "struck", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        os.write(descriptor, f"{time.time()}\n".encode())
        os.close(descriptor)

    def join(self) -> None:
        """Make the process group of all ranks."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if not self.at("join", False):
            dist.init_process_group(self.plan.backend, timeout=timedelta(seconds=self.plan.timeout_s))

    def steps(self) -> Iterator[int]:
        """The steps of the training loop, at the plan's pace."""
        for number in range(self.plan.steps):
            self.step = number
            self.note_progress()
            self.at("step")
            yield number
            time.sleep(self.plan.pace_s)

    def note_progress(self) -> None:
        os.pwrite(self._progress, f"{os.getpid():>10} {self.step:>10}\n".encode(), 0)

    def say(self, text: str) -> None:
        """One line of the training log, in one write: ranks share the stream."""
        os.write(sys.stdout.fileno(), f"[rank{self.rank}] step {self.step}: {text}\n".encode())

    def tensor(self, *shape: int, dtype: Any = torch.float32) -> Tensor:
        return torch.ones(*shape, dtype=dtype, device=self.device)


def load(path: Path) -> ModuleType:
    """A fault's own file as a module of the job."""
    spec = importlib.util.spec_from_file_location("fault", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module at {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fault"] = module
    spec.loader.exec_module(module)
    return module
