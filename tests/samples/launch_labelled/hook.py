import os
import torch
import torch.multiprocessing as mp
import torch.distributed as dist

def worker(rank, world):
    os.environ["NCCL_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("nccl", rank=rank, world_size=world)
    os.environ["NCCL_ALGO"] = "Tree"
    model = torch.nn.Linear(2, 2).to(rank)
    os.environ["NCCL_BUFFSIZE"] = str(1 << 22)

if __name__ == "__main__":
    os.environ.update(NCCL_DEBUG="WARN", NCCL_NVLS_ENABLE="false")
    mp.spawn(worker, args=(8,), nprocs=8)
