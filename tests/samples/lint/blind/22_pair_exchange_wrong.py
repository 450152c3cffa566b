"""Both partners receive first."""
import torch
import torch.distributed as dist


def swap(x):
    partner = dist.get_rank() ^ 1
    y = torch.empty_like(x)
    dist.recv(y, src=partner)  # wrong: p2p-deadlock
    dist.send(x, dst=partner)  # near
    return y


if __name__ == "__main__":
    dist.init_process_group("gloo")
    swap(torch.zeros(5))
    dist.destroy_process_group()
