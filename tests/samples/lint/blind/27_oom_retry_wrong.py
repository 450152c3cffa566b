import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def step(model, batch, opt):
    try:
        loss = model(batch).mean()
        loss.backward()  # wrong: conditional-collective
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        opt.zero_grad(set_to_none=True)
        return None
    opt.step()
    return loss.item()


def main(loader):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2).cuda())
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    for batch in loader:
        step(model, batch, opt)
    dist.destroy_process_group()
