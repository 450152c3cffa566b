"""Every rank goes into an all_reduce but the last, which sleeps in fetch_shard; started by torch's launcher."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def fetch_shard() -> None:
    os.write(1, b"elsewhere\n")
    time.sleep(600)


def main() -> None:
    dist.init_process_group("gloo")
    if int(os.environ["RANK"]) == dist.get_world_size() - 1:
        fetch_shard()
    dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    main()
