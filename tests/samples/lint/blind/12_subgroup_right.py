"""Only members talk in their group; everybody makes all groups."""
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    even = dist.new_group([0, 2])
    odd = dist.new_group([1, 3])
    x = torch.ones(1)
    if rank % 2 == 0:
        dist.all_reduce(x, group=even)
    else:
        dist.all_reduce(x, group=odd)
    dist.destroy_process_group()


main()
