import os
import torch.distributed as dist


def checkpoint(save):
    rank = int(os.environ.get("RANK", "0"))
    rank == 0 and save()
    rank == 0 and dist.barrier()  # wrong: rank0-only-collective


if __name__ == "__main__":
    dist.init_process_group("gloo")
    checkpoint(print)
    dist.destroy_process_group()
