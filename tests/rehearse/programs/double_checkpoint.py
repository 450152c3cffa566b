"""Rank 0 restores statistics in double precision, the others have floats."""
# truth: dtype-mismatch accept

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

import numpy as np


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mean = torch.zeros(10)
    if rank == 0:
        mean = torch.from_numpy(np.linspace(0, 1, 10))
    dist.barrier()
    dist.broadcast(mean, src=0)  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
