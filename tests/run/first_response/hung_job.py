"""A training script: one rank loads its data forever, the others wait for it in all_reduce."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist


def fetch_shard() -> None:
    time.sleep(600)


def train(culprit: int) -> None:
    gradient = torch.ones(64)
    for step in range(1000):
        dist.all_reduce(gradient)
        if step == 2:
            os.write(1, b"third step done\n")
            if dist.get_rank() == culprit:
                fetch_shard()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(int(sys.argv[1]))
