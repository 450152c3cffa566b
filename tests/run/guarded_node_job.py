"""Data parallel over two nodes; one bit flips on the last rank: guarded_node_job.py MODE STEPS."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

mode, steps = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(steps):
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(99 * rank + step))
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    optimizer.step()
    if mode == "flip" and rank == dist.get_world_size() - 1 and step == 5:
        model.module[0].weight.data.view(torch.int32)[3, 4] ^= 1 << 12
    time.sleep(0.05)
os.write(1, f"done {rank}\n".encode())
dist.destroy_process_group()
