import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, files, rank, world):
        self.files = files[rank::world]

    def __iter__(self):
        for name in self.files:
            with open(name) as f:
                yield from f


def main(files):
    dist.init_process_group("gloo")
    loader = DataLoader(Lines(files, dist.get_rank(), dist.get_world_size()), batch_size=8)
    model = DDP(torch.nn.Linear(2, 2))
    for batch in loader:  # near
        loss = model(batch).sum()
        loss.backward()  # wrong: uneven-inputs
    dist.destroy_process_group()
