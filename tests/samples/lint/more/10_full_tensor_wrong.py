import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def export(model, path):
    rank = dist.get_rank()
    if rank == 0:
        full = {name: p.full_tensor() for name, p in model.named_parameters()}  # wrong: rank0-only-collective
        torch.save(full, path)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    net = torch.nn.Linear(8, 8)
    fully_shard(net)
    export(net, "/tmp/x.pt")
    dist.destroy_process_group()
