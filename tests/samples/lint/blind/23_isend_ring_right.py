import torch
import torch.distributed as dist


def shift(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    y = torch.empty_like(x)
    request = dist.isend(x, (rank + 1) % world)
    dist.recv(y, (rank - 1) % world)
    request.wait()
    return y


if __name__ == "__main__":
    dist.init_process_group("gloo")
    shift(torch.zeros(5))
    dist.destroy_process_group()
