import torch
import torch.distributed as dist


def gather_names(names, rank, world):
    mine = names[rank::world]
    every = [None] * world
    dist.all_gather_object(every, mine)
    flat = [name for part in every for name in part]
    for name in flat:
        dist.barrier()
    return flat


if __name__ == "__main__":
    dist.init_process_group("gloo")
    gather_names(["a", "b", "c"], dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
