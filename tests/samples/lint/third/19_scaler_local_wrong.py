"""A loss scale that every rank keeps for itself decides about the step."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Scaler:
    def __init__(self):
        self.scale = 2.0**16

    def found_inf(self, params):
        return any(p.grad is not None and not torch.isfinite(p.grad).all() for p in params)


def main(loader):
    dist.init_process_group("nccl")
    model = FSDP(torch.nn.Linear(8, 8).cuda())
    opt = torch.optim.Adam(model.parameters())
    scaler = Scaler()
    for x in loader:
        (model(x).sum() * scaler.scale).backward()
        if scaler.found_inf(list(model.parameters())):
            scaler.scale /= 2
            opt.zero_grad()
            continue
        model.clip_grad_norm_(1.0)  # wrong: conditional-collective
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()
