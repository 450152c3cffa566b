import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Saver:
    def __init__(self, path):
        self.path = path
        self.main = int(os.environ["RANK"]) == 0

    def save(self, model, step):
        if self.main:
            torch.save({"model": model.module.state_dict(), "step": step}, self.path)
        dist.barrier()


def main():
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4))
    saver = Saver("/tmp/c.pt")
    for step in range(100):
        if step % 10 == 0:
            saver.save(model, step)
    dist.destroy_process_group()


main()
