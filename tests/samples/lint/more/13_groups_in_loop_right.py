import torch
import torch.distributed as dist


def build(world, size):
    mine = None
    rank = dist.get_rank()
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = group
    return mine


if __name__ == "__main__":
    dist.init_process_group("gloo")
    group = build(dist.get_world_size(), 2)
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group()
