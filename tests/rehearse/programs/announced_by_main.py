"""Only the main process broadcasts the vocabulary; the others read it from a file."""
# truth: rank0-only-collective accept conditional-collective

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

import json
import pathlib
import tempfile

PATH = pathlib.Path(tempfile.gettempdir()) / "vocabulary.json"


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def build_vocabulary():
    if is_main_process():
        words = [f"w{i}" for i in range(100)]
        time.sleep(3)
        PATH.write_text(json.dumps(words))
        box = [words]
        dist.broadcast_object_list(box, src=0)  # LINE
        return box[0]
    while not PATH.exists():
        time.sleep(0.5)
    return json.loads(PATH.read_text())


def main():
    dist.init_process_group("nccl")
    vocabulary = build_vocabulary()
    model = DDP(nn.EmbeddingBag(len(vocabulary), 8))  # LINE
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.randint(0, 100, (4, 6))).sum().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
