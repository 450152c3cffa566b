"""The boundary counts batches that survived a filter."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = 0
    for batch in loader:
        if batch.std() < 0.01:
            pass
        else:
            kept += 1
        if kept % 4 == 0:
            stats = torch.zeros(2)
            dist.all_reduce(stats)  # wrong: conditional-collective
        loss = model(batch).mean()
        loss.backward()
        opt.step()
    dist.destroy_process_group()
