import random
import torch
import torch.distributed as dist


def common_choice(options):
    pick = torch.tensor([random.randrange(len(options))])
    dist.broadcast(pick, src=0)
    return options[int(pick)]


def main(options):
    dist.init_process_group("gloo")
    x = torch.ones(2)
    if common_choice(options) == "sum":
        dist.all_reduce(x)
    else:
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()
