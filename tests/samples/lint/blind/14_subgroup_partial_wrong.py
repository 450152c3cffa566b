"""Rank 1 is a member and never calls."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group(ranks=[0, 1])
x = torch.ones(4)
if rank == 0:
    dist.all_reduce(x, group=pair)  # wrong: rank0-only-collective|conditional-collective
dist.barrier()
dist.destroy_process_group()
