"""Clipping depends on the local loss: the replicas drift apart in silence."""
# truth: replica-divergence accept

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
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 1).cuda(), device_ids=[rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(60):
        x = torch.randn(4, 6).cuda() * (1 + 0.1 * step)
        loss = (model(x) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        if loss.item() > 6.0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
