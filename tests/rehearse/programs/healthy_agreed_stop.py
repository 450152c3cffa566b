"""Accumulation with no_sync, NaN steps skipped and early stopping, all agreed upon: fine."""
# truth: healthy accept

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from contextlib import nullcontext


def agreed(flag, device):
    t = torch.tensor([1.0 if flag else 0.0], device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return bool(t.item())


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(rank)
    data = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=2, pin_memory=True)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device), device_ids=[device.index])
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    best, bad = float("inf"), 0
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            last = i % 4 == 3
            with nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = F.mse_loss(model(x.to(device, non_blocking=True)), y.to(device)) / 4
                if agreed(not torch.isfinite(loss).item(), device):
                    opt.zero_grad()
                    continue
                scaler.scale(loss).backward()
            if last:
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=True)
        value = loss.detach().clone()
        dist.all_reduce(value)
        if value.item() / world < best:
            best, bad = value.item() / world, 0
        else:
            bad += 1
        if rank == 0:
            try:
                torch.save({"model": model.module.state_dict()}, "/data/checkpoints/last.pt")
            except (OSError, RuntimeError) as error:
                print("could not save:", error)
        dist.barrier()
        if agreed(bad > 2, device):
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
