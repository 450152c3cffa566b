"""Detections per image differ, and are gathered without padding."""
# truth: size-mismatch accept

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


def detect(rank, step):
    g = torch.Generator().manual_seed(rank * 100 + step)
    return torch.rand(50, 4, generator=g) if step < 4 else torch.rand(int(torch.randint(10, 50, (1,), generator=g)), 4, generator=g)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(10):
        boxes = detect(rank, step).cuda()
        gathered = torch.empty(world * boxes.shape[0], 4, device="cuda")
        dist.all_gather_into_tensor(gathered, boxes)  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
