import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net):
        self.rank = dist.get_rank()
        self.model = FSDP(net)

    def save(self, path):
        if self.rank == 0:
            state = self.model.state_dict()  # wrong: rank0-only-collective
            torch.save(state, path)


if __name__ == "__main__":
    dist.init_process_group("nccl")
    Trainer(torch.nn.Linear(2, 2)).save("/tmp/m.pt")
    dist.destroy_process_group()
