import torch
import torch.distributed as dist


def share(x):
    me = dist.get_rank()
    dist.broadcast(x, src=me)  # wrong: root-mismatch
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    share(torch.ones(2))
    dist.destroy_process_group()
