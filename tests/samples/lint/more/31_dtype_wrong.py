import torch
import torch.distributed as dist


def share(x):
    if dist.get_rank() == 0:
        x = x.half()
    dist.all_reduce(x)  # wrong: dtype-mismatch
    return x


if __name__ == "__main__":
    dist.init_process_group("nccl")
    share(torch.ones(4))
    dist.destroy_process_group()
