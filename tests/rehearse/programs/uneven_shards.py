"""Every rank reads the shard files that are assigned to it; they differ in length."""
# truth: uneven-inputs accept

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


class Shards(IterableDataset):
    def __init__(self, rank, world):
        sizes = [40 + 7 * (i % 5) for i in range(2 * world + 1)]
        self.sizes = sizes[rank::world]

    def __iter__(self):
        for size in self.sizes:
            for _ in range(size):
                yield torch.randn(8), torch.randn(1)


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)  # LINE
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in DataLoader(Shards(rank, world), batch_size=8):
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            average_gradients(model, world)
            opt.step()
        total = torch.ones(1)
        dist.reduce(total, 0)  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
