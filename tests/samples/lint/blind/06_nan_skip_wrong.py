"""A NaN batch is skipped by the rank that saw it."""
import math
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(model, loader, opt):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        if not math.isfinite(loss.item()):
            opt.zero_grad()
            continue
        loss.backward()  # wrong: conditional-collective
        opt.step()
        opt.zero_grad()


def main(data):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(model, loader, opt)
    dist.destroy_process_group()
