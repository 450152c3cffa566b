"""The job of `straggler_cost.py`: one rank of a DDP job that goes through many small experiments, one after the other.

An experiment is a dict: `kind` and `slow` (which rank loses `delay_s` in every step, and with what), `bucket_mb` (the
bucket size that is profiled) and `other_mb` (the one that it is compared with), `layers`, `width`, `pause_s`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from whichrank.worker.profiler import Profile

BATCH, WARM, MEASURED, RECORDED = 8, 3, 12, 8


class Samples(Dataset):
    def __init__(self, width, delay):
        self.width, self.delay = width, delay

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.delay:
            time.sleep(self.delay / BATCH)
        return torch.randn(self.width)


class Paused(torch.autograd.Function):
    """Computation that needs no core: two cores stand in for many devices."""

    pause = 0.0

    @staticmethod
    def forward(ctx, x):  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx, grad):  # noqa: ARG004
        time.sleep(Paused.pause)
        return grad


class Model(torch.nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(Paused.apply(x) if Paused.pause else x)
        return x


def work(seconds):
    a, until = torch.randn(256, 256), time.monotonic() + seconds
    while time.monotonic() < until:
        a @ a


class Training:
    """A model with its own buckets; `late` says whether this rank loses time."""

    def __init__(self, plan, bucket_mb):
        self.plan = plan
        self.model = DistributedDataParallel(Model(plan["layers"], plan["width"]), bucket_cap_mb=bucket_mb)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)

    def steps(self, count, *, late):
        mine = late and dist.get_rank() == self.plan["slow"]
        kind, delay = self.plan["kind"] if mine else "none", self.plan["delay_s"]
        data = iter(DataLoader(Samples(self.plan["width"], delay if kind == "data" else 0.0), batch_size=BATCH))
        times = []
        for _ in range(count):
            begun = time.monotonic()
            batch = next(data)
            if kind == "host":
                time.sleep(delay)
            loss = self.model(batch)
            if kind == "compute":
                work(delay)
            loss.pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            times.append(time.monotonic() - begun)
        return times

    def recorded(self, folder):
        """The late job under the profiler of `whichrank profile`."""
        wishes = {"folder": str(folder), "skip": 1, "steps": RECORDED, "seconds": 60, "most_bytes": 1 << 28,
                  "shapes": True, "stacks": False, "nvtx": False}  # fmt: skip
        profile = Profile(wishes)
        profile.watch()
        times = self.steps(RECORDED + 4, late=True)
        profile.end()
        return times


def experiment(plan, folder):
    Paused.pause = plan["pause_s"]
    training = Training(plan, plan["bucket_mb"])
    training.steps(WARM, late=False)
    found = {"plan": plan, "without": training.steps(MEASURED, late=False)}
    found["with"] = training.steps(MEASURED, late=True)
    found["profiled"] = training.recorded(folder)
    # Again: what drifts on this machine in between must not count as the delay's.
    found["with"] += training.steps(MEASURED, late=True)
    found["without"] += training.steps(MEASURED, late=False)
    if plan.get("other_mb"):
        other = Training(plan, plan["other_mb"])
        other.steps(WARM, late=False)
        found["other"] = other.steps(MEASURED, late=True)
        found["with"] += training.steps(MEASURED, late=True)
        found["other"] += other.steps(MEASURED, late=True)
    if dist.get_rank() == 0:
        (folder / "times.json").write_text(json.dumps(found))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for number, plan in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        folder = Path(sys.argv[2]) / f"{number:02d}"
        folder.mkdir(exist_ok=True)
        experiment(plan, folder)
        dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
