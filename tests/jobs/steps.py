"""A small DDP job for profiles: equal ranks, one of which may be slow. `KIND` is none, compute, host or data."""

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

KIND, SLOW = os.environ.get("KIND", "none"), int(os.environ.get("SLOW", "-1"))
STEPS, DELAY_S = int(os.environ.get("STEPS", "16")), float(os.environ.get("DELAY_S", "0.1"))
WIDTH, LAYERS = int(os.environ.get("WIDTH", "64")), int(os.environ.get("LAYERS", "8"))
BUCKET_MB = float(os.environ.get("BUCKET_MB", "0.02"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0"))
"""Sleep between the layers' backward passes: computation that needs no core."""
BLOCK = int(os.environ.get("BLOCK", "0"))
"""The delay comes and goes every so many steps; 0: it stays."""
BATCH = 8
DEVICE, TIMES_AS_LARGE = os.environ.get("DEVICE", "cpu"), int(os.environ.get("TIMES_AS_LARGE", "1"))
"""On a device a batch may be so many times as large as what the loader gave: work without a wait for data."""


class Samples(Dataset):
    delay = 0.0

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.delay:
            time.sleep(self.delay / BATCH)
        return torch.randn(WIDTH)


class Paused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(PAUSE_S)
        return grad


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(Paused.apply(x) if PAUSE_S else x)
        return x


def work(seconds):
    a, until = torch.randn(256, 256), time.monotonic() + seconds
    while time.monotonic() < until:
        a @ a


def main():
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    samples = Samples()
    data = iter(DataLoader(samples, batch_size=BATCH))
    model = DistributedDataParallel(Model().to(DEVICE), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for step in range(STEPS):
        late = dist.get_rank() == SLOW and (not BLOCK or step // BLOCK % 2 == 0)
        samples.delay = DELAY_S if late and KIND == "data" else 0.0
        begun = time.monotonic()
        batch = next(data)
        if late and KIND == "host":
            time.sleep(DELAY_S)
        loss = model(batch.to(DEVICE).repeat(TIMES_AS_LARGE, 1) if DEVICE == "cuda" else batch)
        if late and KIND == "compute":
            work(DELAY_S)
        loss.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic() - begun)
    if dist.get_rank() == 0 and os.environ.get("TIMES"):
        Path(os.environ["TIMES"]).write_text(json.dumps(times))
    # With torch 2.13 a thread of Gloo that drops the work of the last backward pass needs the interpreter: who destroys
    # the group before it got that waits for this thread, with the interpreter held, for ever.
    time.sleep(0.2)
    dist.destroy_process_group()
    sys.exit(int(os.environ.get("CODE", "0")))


if __name__ == "__main__":
    main()
