"""Helpers that ask first whether there is a group, and for the rank."""
import torch
import torch.distributed as dist


def initialized():
    return dist.is_available() and dist.is_initialized()


def is_main():
    return not initialized() or dist.get_rank() == 0


def barrier():
    if initialized():
        dist.barrier()


def mean(x):
    if not initialized():
        return x
    x = x.clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()


def main(loader, model, path):
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    for x in loader:
        total += model(x).mean()
    value = mean(total)
    if is_main():
        torch.save(model.state_dict(), path)
        print(value.item())
    barrier()
    if value.item() > 3:
        barrier()
    dist.destroy_process_group()
