"""One rank per node talks to the others of its kind; the groups are made by all."""
import os
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    leaders = dist.new_group(list(range(0, dist.get_world_size(), per_node)))
    x = torch.ones(1)
    if local_rank == 0:
        dist.all_reduce(x, group=leaders)
    dist.barrier()
    dist.destroy_process_group()


main()
