import torch
import torch.distributed as dist


def gather_positive(loader, model, world):
    for x, y in loader:
        scores = model(x)
        mine = scores[y == 1]
        size = torch.tensor(len(mine))
        dist.all_reduce(size, op=dist.ReduceOp.MAX)
        padded = torch.zeros(int(size))
        padded[: len(mine)] = mine
        out = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(out, padded)
        yield torch.cat(out)
