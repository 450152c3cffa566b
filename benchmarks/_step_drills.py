"""The job of `straggler_cost.py`: one rank of a DDP job that goes through many small experiments, one after the other.

An experiment is a dict: `kind` and `slow` (which rank loses `delay_s` in every step, and with what), `bucket_mb` (the
bucket size that is profiled) and `other_mb` (the one that it is compared with), `layers`, `width`, `pause_s` (of each
layer's backward pass), `forward_s`, `batch`, `mixed`: layers of several sizes, as models have them, and `pairs` of
blocks.
Blocks of steps as they are profiled and blocks of the steps that they are compared with take turns, so that what drifts
on the machine hits both; the profile is taken between two of them.
"""

from __future__ import annotations

import itertools
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

BATCH, WARM, SKIPPED, RECORDED = 8, 3, 6, 6
BLOCK = 5
"""Steps of a block."""
JUDGED_S = 20
"""How long the job pauses at most, so that whoever judges an experiment does not disturb the next one."""


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
    def __init__(self, layers, width, mixed):
        super().__init__()
        sizes = [width * (1 + (mixed and place % 4 in (2, 3))) for place in range(layers)] + [width]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x):
        for layer in self.layers:
            x = layer(Paused.apply(x) if Paused.pause else x)
        return x


def work(seconds):
    if DEVICE == "cuda":
        spin(round(seconds * CYCLES_PER_S))
        return
    a, until = torch.randn(256, 256), time.monotonic() + seconds
    while time.monotonic() < until:
        a @ a


def forward(seconds):
    """Computation before the layers: it needs no core, or one multiprocessor."""
    if DEVICE == "cuda":
        spin(round(seconds * CYCLES_PER_S))
    else:
        time.sleep(seconds)


def spin(cycles):
    """A kernel that occupies one multiprocessor and computes nothing."""
    torch.cuda._sleep(cycles)  # noqa: SLF001


def settled():
    """The time once the device has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def spinning():
    """Cycles of the spinning kernel per second, on this device."""
    spin(1000)
    begun = settled()
    spin(100_000_000)
    return 100_000_000 / (settled() - begun)


class Training:
    """A model with its own buckets; `late` says whether this rank loses time."""

    def __init__(self, plan, bucket_mb):
        self.plan = plan
        model = Model(plan["layers"], plan["width"], plan.get("mixed", False)).to(DEVICE)
        self.model = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)

    def steps(self, count, *, late):
        """Seconds per step; the first one, which still settles, does not count."""
        mine = late and dist.get_rank() == self.plan["slow"]
        kind, delay = self.plan["kind"] if mine else "none", self.plan["delay_s"]
        samples = Samples(self.plan["width"], delay if kind == "data" else 0.0)
        data = iter(DataLoader(samples, batch_size=self.plan.get("batch", BATCH)))
        for step in range(count):
            if step == 1:
                begun = settled()
            batch = next(data).to(DEVICE)
            if kind == "host":
                time.sleep(delay)
            forward(self.plan.get("forward_s", 0.0))
            loss = self.model(batch)
            if kind == "compute":
                work(delay)
            loss.pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return (settled() - begun) / (count - 1)

    def recorded(self, folder):
        """The late job under the profiler of `whichrank profile`."""
        wishes = {"folder": str(folder), "skip": SKIPPED, "steps": RECORDED, "seconds": 60, "most_bytes": 1 << 28,
                  "shapes": False, "stacks": False, "nvtx": False}  # fmt: skip
        profile = Profile(wishes)
        profile.watch()
        self.steps(SKIPPED + RECORDED + 4, late=True)
        profile.end()


def experiment(plan, folder):
    """Step times with and without, by pairs of blocks; the order within the pairs alternates."""
    Paused.pause = plan["pause_s"]
    training = Training(plan, plan["bucket_mb"])
    other = Training(plan, plan["other_mb"]) if plan.get("other_mb") else training
    training.steps(WARM, late=False)
    other.steps(WARM, late=False)
    pairs = []
    for turn in range(plan["pairs"]):
        if turn == plan["pairs"] // 2:
            training.recorded(folder)
            dist.barrier()
        both = {}
        for kind in ("with", "without") if turn % 2 else ("without", "with"):
            chosen = training if kind == "with" else other
            both[kind] = chosen.steps(BLOCK, late=kind == "with")
        pairs.append(both)
    if dist.get_rank() == 0:
        (folder / "times.part").write_text(json.dumps({"plan": plan, "pairs": pairs}))
        (folder / "times.part").rename(folder / "times.json")
        waited = time.monotonic()
        while not (folder / "judged").exists() and time.monotonic() - waited < JUDGED_S:
            time.sleep(0.02)


def main():
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        os.environ["NCCL_HOSTID"] = os.environ["RANK"]  # ranks may share a device only if NCCL takes them for hosts
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    all_of(experiment)


def all_of(experiment):
    """Every plan of the file that is named first, each in a folder of its own below the one that is named second."""
    for number, plan in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        folder = Path(sys.argv[2]) / f"{number:02d}"
        folder.mkdir(exist_ok=True)
        experiment(plan, folder)
        dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cpu"
CYCLES_PER_S = spinning() if DEVICE == "cuda" else 0.0

if __name__ == "__main__":
    main()
