"""A job of two ranks that forks them itself: after some steps rank 1 waits for data that never comes."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch._dynamo  # as every optimizer does: before the ranks are forked
import torch.distributed as dist

from whichrank.lab.workloads.forking import fork_ranks


def load_batch():
    time.sleep(600)


def train(_rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    weights = torch.nn.Parameter(torch.zeros(4096))
    optimizer = torch.optim.SGD([weights])
    for number in range(10_000):
        weights.grad = torch.ones(4096)
        dist.all_reduce(weights.grad)
        optimizer.step()
        time.sleep(0.05)
        if number == 60 and os.environ["RANK"] == "1":
            load_batch()


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", WORLD_SIZE="2")
    sys.exit(fork_ranks(range(2), train))
