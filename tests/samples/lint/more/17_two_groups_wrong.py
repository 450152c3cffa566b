import torch
import torch.distributed as dist


def exchange(x, rows, columns):
    if dist.get_rank() < 2:
        dist.all_reduce(x, group=rows)  # wrong: process-group-order
        dist.all_reduce(x, group=columns)  # near
    else:
        dist.all_reduce(x, group=columns)  # near
        dist.all_reduce(x, group=rows)  # near
    return x


if __name__ == "__main__":
    dist.init_process_group("nccl")
    rows, columns = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    exchange(torch.ones(2), rows, columns)
    dist.destroy_process_group()
