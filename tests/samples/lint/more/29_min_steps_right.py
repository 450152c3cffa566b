import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset


def main(data):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Subset(data, list(range(rank, len(data), world))), batch_size=4)
    steps = torch.tensor(len(loader))
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    model = DDP(torch.nn.Linear(2, 2))
    batches = iter(loader)
    for _ in range(steps.item()):
        model(next(batches)).sum().backward()
    dist.destroy_process_group()
