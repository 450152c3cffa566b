import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def validate(model, loader):
    losses = []
    with torch.no_grad():
        for x, y in loader:
            losses.append(torch.nn.functional.mse_loss(model(x), y))
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean


def main(train_loader, val_loader):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = FSDP(torch.nn.Linear(8, 1).cuda())
    best = float("inf")
    for epoch in range(10):
        val = validate(model, val_loader)
        if val < best:
            best = val
            state = model.state_dict()
            if rank == 0:
                torch.save(state, "/tmp/best.pt")
    dist.destroy_process_group()
