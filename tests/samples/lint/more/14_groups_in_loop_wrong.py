import torch
import torch.distributed as dist


def build(world, size):
    rank = dist.get_rank()
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        if rank in ranks:
            return dist.new_group(ranks)  # wrong: conditional-collective|process-group-order
    return None


if __name__ == "__main__":
    dist.init_process_group("gloo")
    group = build(dist.get_world_size(), 2)
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group()
