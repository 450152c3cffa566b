"""The usual dance around a download: the others wait, then rank 0 lets them go."""
import os
import torch.distributed as dist


def fetch(path):
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if local_rank not in [-1, 0]:
        dist.barrier()
    if local_rank in [-1, 0] and not os.path.exists(path):
        download(path)
    if local_rank == 0:
        dist.barrier()
    return open(path).read()


def download(path):
    with open(path, "w") as f:
        f.write("data")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    fetch("/tmp/x")
    dist.destroy_process_group()
