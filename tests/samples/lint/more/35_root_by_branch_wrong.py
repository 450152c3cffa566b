import torch
import torch.distributed as dist


def share(x):
    if dist.get_rank() < 2:
        dist.broadcast(x, src=0)  # wrong: root-mismatch
    else:
        dist.broadcast(x, src=2)  # near
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    share(torch.ones(1))
    dist.destroy_process_group()
