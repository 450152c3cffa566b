"""Rank 0 evaluates through the wrapped model, whose forward broadcasts buffers."""
# truth: rank0-only-collective accept conditional-collective

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


def evaluate(model, device):
    correct = 0
    for _ in range(3):
        x = torch.randn(16, 3, 8, 8, device=device)
        correct += model(x).argmax(1).eq(0).sum().item()  # LINE
    return correct


def main():
    local = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl", init_method="env://")
    device = torch.device(f"cuda:{local}")
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    model = DDP(net.to(device), device_ids=[local])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        loss = F.cross_entropy(model(torch.randn(8, 3, 8, 8, device=device)), torch.randint(0, 10, (8,), device=device))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 9 and dist.get_rank() == 0:
            print("accuracy", evaluate(model, device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
