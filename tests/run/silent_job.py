"""A rank of a job that ends without saying why: python silent_job.py HOW.

HOW is `exit` or `swallowed` for rank 1 alone; `everybody`, `all_swallow` or `all_leave` for all ranks at once, so that
nobody's end comes first and tells who it was. `elsewhere FILE` ends rank 1 at step 12, in the next start at step 150,
and then no more; FILE counts the starts.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def check(shard):
    if shard == 12:
        raise ValueError("shard 12 has no samples")


def load(shard):
    try:
        check(shard)
    except ValueError:
        sys.exit(3)


def give_up(code):
    os._exit(code)


def leave_early():
    sys.exit(5)


def started(file):
    """How often it was started before."""
    count = file.stat().st_size if file.exists() else 0
    if os.environ["RANK"] == "1":
        file.write_bytes(b"." * (count + 1))
    return count


def main(how, file=""):
    torch.set_num_threads(1)
    ends_at = {0: 12, 1: 150}.get(started(Path(file))) if how == "elsewhere" else None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(200):
        if how == "all_swallow" or (how == "swallowed" and rank == 1):
            load(step)
        if how == "all_leave" and step == 12:
            leave_early()
        if rank == 1 and step == ends_at:
            give_up(7)
        if step == 12 and (how == "everybody" or (how == "exit" and rank == 1)):
            give_up(7)
        dist.all_reduce(torch.ones(64))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
