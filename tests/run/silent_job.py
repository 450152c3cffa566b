"""A rank of a job that ends without saying why: python silent_job.py HOW.

HOW is `exit` or `swallowed` for rank 1 alone; `everybody`, `all_swallow` or `all_leave` for all ranks at once, so that
nobody's end comes first and tells who it was.
"""

import os
import sys
import time

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


def main(how):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(200):
        if how == "all_swallow" or (how == "swallowed" and rank == 1):
            load(step)
        if how == "all_leave" and step == 12:
            leave_early()
        if step == 12 and (how == "everybody" or (how == "exit" and rank == 1)):
            give_up(7)
        dist.all_reduce(torch.ones(64))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
