"""A data-parallel program that sets its environment where it works."""

import argparse
import os

os.environ.setdefault("NCCL_DEBUG", "WARN")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank: int, world_size: int) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    os.environ["NCCL_P2P_LEVEL"] = "NVL"
    if world_size > 8:
        os.environ["NCCL_SOCKET_IFNAME"] = f"eth{rank % 2}"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def work(rank: int, world_size: int) -> None:
    setup(rank, world_size)
    model = torch.nn.Linear(8, 8).cuda()
    os.environ["WANDB_STEP"] = "1"
    dist.all_reduce(model.weight.data)
    dist.destroy_process_group()


def evaluate() -> None:
    if not dist.is_initialized():
        os.environ["NCCL_IB_DISABLE"] = "1"
        dist.init_process_group("gloo")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    world = torch.cuda.device_count()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(world)))
    mp.spawn(work, args=(world,), nprocs=world)
