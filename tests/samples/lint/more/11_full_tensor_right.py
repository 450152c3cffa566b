import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def export(model, path):
    rank = dist.get_rank()
    full = {}
    for name, p in model.named_parameters():
        tensor = p.full_tensor()
        if rank == 0:
            full[name] = tensor.cpu()
    if rank == 0:
        torch.save(full, path)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    net = torch.nn.Linear(8, 8)
    fully_shard(net)
    export(net, "/tmp/x.pt")
    dist.destroy_process_group()
