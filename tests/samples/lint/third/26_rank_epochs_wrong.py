import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    epochs = 10 if rank == 0 else 8
    model = DDP(torch.nn.Linear(2, 2))
    for epoch in range(epochs):  # near
        for x in loader:
            model(x).sum().backward()  # wrong: uneven-inputs|conditional-collective
    dist.destroy_process_group()
