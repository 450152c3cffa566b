import torch
import torch.distributed as dist


def combine(x):
    op = dist.ReduceOp.SUM if dist.get_rank() == 0 else dist.ReduceOp.MAX
    dist.all_reduce(x, op=op)  # wrong: reduce-op-mismatch
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    combine(torch.ones(1))
    dist.destroy_process_group()
