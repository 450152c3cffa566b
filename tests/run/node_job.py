"""A rank of a job on two hosts: python node_job.py WHAT FOLDER; at a step rank 2 does it, or the test does."""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANK, CULPRIT, FAULT_STEP = int(os.environ["RANK"]), 2, 60


def load_batch():
    time.sleep(600)


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=200))
    for number in range(100 if what == "none" else 20_000):
        dist.all_reduce(torch.ones(4096))
        time.sleep(0.05)
        if number == FAULT_STEP:
            (folder / f"reached.{RANK}").write_text(str(os.getpid()))
        if number == FAULT_STEP and RANK == CULPRIT and what == "hang":
            load_batch()
        if number == FAULT_STEP and RANK == CULPRIT and what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()
    sys.stdout.write(f"rank {RANK} done\n")


if __name__ == "__main__":
    main()
