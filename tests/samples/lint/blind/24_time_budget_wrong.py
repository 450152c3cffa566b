"""Stops when its own clock says so."""
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    opt = torch.optim.Adam(model.parameters())
    start = time.time()
    step = 0
    while time.time() - start < 3600:  # near
        x = next(loader)
        loss = model(x).sum()
        loss.backward()  # wrong: conditional-collective|uneven-inputs
        opt.step()
        step += 1
    dist.destroy_process_group()
