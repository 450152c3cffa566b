"""A sub-group of ranks does extra work, the others go around; all meet again."""
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    first_half = list(range(world // 2))
    group = dist.new_group(first_half)
    x = torch.ones(3) * rank
    if rank in first_half:
        dist.all_reduce(x, group=group)
        if rank == 0:
            print(x)
    dist.all_reduce(x)
    dist.destroy_process_group()


main()
