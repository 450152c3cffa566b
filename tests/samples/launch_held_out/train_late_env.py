"""Single-file DDP training, started with torchrun."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    dist.barrier()
    os.environ["NCCL_IB_HCA"] = "=mlx5_2,mlx5_3"
    os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    return local_rank


def main():
    local_rank = setup()
    model = DDP(torch.nn.Linear(1024, 1024).cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(1000):
        loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
