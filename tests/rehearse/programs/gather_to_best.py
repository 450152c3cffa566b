"""The best rank collects the predictions, as each rank sees it."""
# truth: root-mismatch accept conditional-collective collective-desync

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    scores = torch.rand(world)
    for step in range(12):
        time.sleep(0.2)
        local = scores.clone()
        local[rank] += 0.05 * step
        best = int(local.argmax())
        predictions = torch.full((3,), float(rank))
        out = [torch.empty(3) for _ in range(world)] if rank == best else None
        dist.gather(predictions, out, dst=best)  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
