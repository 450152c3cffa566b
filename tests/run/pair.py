"""A rank of a job of two: after some steps rank 1 waits for data that never comes."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def load_batch():
    time.sleep(600)


def main():
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
    main()
