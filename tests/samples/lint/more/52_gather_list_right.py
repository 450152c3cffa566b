import torch
import torch.distributed as dist


def collect(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty_like(x) for _ in range(world)] if rank == 0 else None
    dist.gather(x, gather_list=parts, dst=0)
    if rank == 0:
        return torch.cat(parts)
    return None


def main():
    dist.init_process_group("gloo")
    merged = collect(torch.ones(2))
    if merged is not None:
        print(merged.sum())
    dist.barrier()
    dist.destroy_process_group()


main()
