"""Early stopping decided on each rank's own validation loss."""
# truth: conditional-collective accept uneven-inputs teardown-hang collective-desync

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


class EarlyStopping:
    def __init__(self, patience=3):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def should_stop(self, value):
        if value < self.best - 1e-4:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    x, y = torch.randn(512, 16), torch.randn(512, 1)
    train = DataLoader(TensorDataset(x, y), batch_size=32, drop_last=True)
    val_x, val_y = torch.randn(64, 16).cuda(), torch.randn(64, 1).cuda()
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), device_ids=[rank])
    opt, stop = torch.optim.Adam(model.parameters(), lr=3e-3), EarlyStopping()
    for epoch in range(40):
        for xb, yb in train:
            loss = F.mse_loss(model(xb.cuda()), yb.cuda())
            opt.zero_grad()
            loss.backward()  # LINE
            opt.step()
        with torch.no_grad():
            value = F.mse_loss(model.module(val_x), val_y).item()
        if stop.should_stop(value):
            break
    dist.barrier()  # LINE
    dist.destroy_process_group()


main()
