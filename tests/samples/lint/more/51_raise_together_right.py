import torch
import torch.distributed as dist


def check(loss):
    if torch.isnan(loss):
        raise ValueError("NaN loss")
    dist.all_reduce(loss)


def main(loader, model):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank >= 64:
        raise SystemExit("too many ranks")
    for batch in loader:
        check(model(batch).mean())
    dist.destroy_process_group()
