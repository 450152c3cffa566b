"""Evaluation after so many seconds, on each rank's own clock; it reduces the result."""
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader):
    total = torch.zeros(1)
    for x in loader:
        total += model.module(x).sum()
    dist.all_reduce(total)  # wrong: conditional-collective
    return total.item()


def main(train, valid):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    last = time.perf_counter()
    for x in train:
        model(x).sum().backward()
        now = time.perf_counter()
        if now - last > 60:  # near
            evaluate(model, valid)
            last = now
    dist.destroy_process_group()
