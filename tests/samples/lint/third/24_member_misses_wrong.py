import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group([0, 1, 2])
    x = torch.ones(3)
    if rank < 2:
        dist.all_reduce(x, group=group)  # wrong: conditional-collective
    dist.barrier()
    dist.destroy_process_group()


main()
