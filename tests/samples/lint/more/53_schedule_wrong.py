import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Shard(torch.utils.data.Dataset):
    def __init__(self, rows, rank):
        self.rows = [r for r in rows if hash(r) % 4 == rank]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def main(rows):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Shard(rows, rank), batch_size=4)
    model = DDP(torch.nn.Linear(2, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=len(loader))  # wrong: replica-divergence
    steps = torch.tensor(len(loader))
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    for _, x in zip(range(int(steps)), loader):
        model(x).sum().backward()
        opt.step()
        sched.step()
    dist.destroy_process_group()
