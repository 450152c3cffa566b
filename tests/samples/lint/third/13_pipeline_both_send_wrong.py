"""Forward activations down and gradients up, both with blocking sends, and both sides send first."""
import torch
import torch.distributed as dist


def exchange(act, grad):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank < world - 1:
        dist.send(act, dst=rank + 1)  # wrong: p2p-deadlock
    if rank > 0:
        dist.send(grad, dst=rank - 1)  # near
        dist.recv(act, src=rank - 1)  # near
    if rank < world - 1:
        dist.recv(grad, src=rank + 1)


if __name__ == "__main__":
    dist.init_process_group("nccl")
    exchange(torch.ones(4), torch.ones(4))
    dist.destroy_process_group()
