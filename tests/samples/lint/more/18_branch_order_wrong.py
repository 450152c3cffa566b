import torch
import torch.distributed as dist


def sync(x, y):
    rank = dist.get_rank()
    if rank == 0:
        dist.broadcast(x, src=0)  # wrong: collective-order
        dist.all_reduce(y)  # near
    else:
        dist.all_reduce(y)  # near
        dist.broadcast(x, src=0)  # near


if __name__ == "__main__":
    dist.init_process_group("gloo")
    sync(torch.ones(1), torch.ones(1))
    dist.destroy_process_group()
