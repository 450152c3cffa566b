import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(samples):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(torch.nn.Linear(2, 2))
    with model.join():
        for x in samples[rank::world]:
            model(x).sum().backward()
    dist.destroy_process_group()
