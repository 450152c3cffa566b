import torch
import torch.distributed as dist


def gather_positive(loader, model, world):
    for x, y in loader:
        scores = model(x)
        mine = scores[y == 1]
        out = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(out, mine)  # wrong: size-mismatch
        yield torch.cat(out)
