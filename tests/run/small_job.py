"""A rank of a small job: python small_job.py FOLDER; it goes on until FOLDER/end is there.

While FOLDER/pause is there, rank 1 sleeps and the others wait for it.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(sys.argv[1])


def rest():
    while (FOLDER / "pause").exists():
        time.sleep(0.2)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    rank, end = dist.get_rank(), torch.zeros(1)
    (FOLDER / f"pid.{rank}").write_text(str(os.getpid()))
    steps = 0
    while not end.item():
        dist.all_reduce(torch.ones(64))
        time.sleep(0.05)
        if rank == 1:
            rest()
        end.fill_(float((FOLDER / "end").exists()))
        dist.broadcast(end, 0)
        steps += 1
        if steps == 10:
            (FOLDER / f"ready.{rank}").touch()
    dist.destroy_process_group()
    (FOLDER / f"done.{rank}").touch()


if __name__ == "__main__":
    main()
