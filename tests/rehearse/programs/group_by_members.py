"""Only the members create the group of the evaluation ranks."""
# truth: process-group-order accept conditional-collective collective-desync missing-rank-at-init collective-order

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
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(4, 4).cuda())
    evaluators = list(range(world // 2))
    if rank in evaluators:
        evaluation = dist.new_group(evaluators)  # LINE
    halves = [dist.new_group(list(range(i, world, 2))) for i in range(2)]  # LINE
    mine = halves[rank % 2]
    for step in range(10):
        model(torch.randn(2, 4).cuda()).sum().backward()
        t = torch.ones(1).cuda()
        dist.all_reduce(t, group=mine)  # LINE
        assert t.item() == world // 2
        if rank in evaluators:
            dist.all_reduce(t, group=evaluation)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
