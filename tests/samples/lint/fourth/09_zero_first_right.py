import contextlib
import torch
import torch.distributed as dist


@contextlib.contextmanager
def rank_zero_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def build(cache, rank):
    with rank_zero_first(rank):
        data = torch.load(cache)
    size = torch.tensor(len(data))
    dist.all_reduce(size)
    return data, size


if __name__ == "__main__":
    dist.init_process_group("gloo")
    build("/tmp/c.pt", dist.get_rank())
    dist.destroy_process_group()
