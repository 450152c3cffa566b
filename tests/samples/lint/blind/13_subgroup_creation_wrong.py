import torch
import torch.distributed as dist


def my_group(rank):
    if rank < 2:
        return dist.new_group([0, 1])  # wrong: conditional-collective|process-group-order
    return None


def main():
    dist.init_process_group("gloo")
    group = my_group(dist.get_rank())
    if group is not None:
        dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group()


main()
