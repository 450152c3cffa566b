"""Halo exchange on a ring; everybody receives first."""
# truth: p2p-deadlock accept p2p-unmatched

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


class Halo:
    def __init__(self, width):
        self.rank, self.world, self.width = dist.get_rank(), dist.get_world_size(), width

    def exchange(self, field):
        left, right = (self.rank - 1) % self.world, (self.rank + 1) % self.world
        ghost = torch.empty(self.width)
        dist.recv(ghost, src=left)  # LINE
        dist.send(field[-self.width:].contiguous(), dst=right)  # LINE
        field[: self.width] = ghost


def main():
    dist.init_process_group("gloo")
    field = torch.randn(128)
    halo = Halo(4)
    for step in range(50):
        field = 0.5 * field + 0.5 * field.roll(1)
        if step % 10 == 0:
            s = field.sum()
            dist.all_reduce(s)
        if step >= 20:
            halo.exchange(field)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
