"""Helpers that do nothing in a world of one, or before set-up."""
import torch
import torch.distributed as dist


def is_dist():
    return dist.is_available() and dist.is_initialized()


def world_size():
    return dist.get_world_size() if is_dist() else 1


def rank():
    return dist.get_rank() if is_dist() else 0


def reduce_dict(values):
    if world_size() < 2:
        return values
    names = sorted(values)
    stacked = torch.stack([values[n] for n in names])
    dist.reduce(stacked, dst=0)
    if rank() == 0:
        stacked /= world_size()
    return dict(zip(names, stacked))


def synchronize():
    if not is_dist():
        return
    if dist.get_world_size() == 1:
        return
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(reduce_dict({"a": torch.ones(1)}))
    synchronize()
    dist.destroy_process_group()
