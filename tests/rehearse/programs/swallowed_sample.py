"""A corrupt record on one rank is skipped, together with its step."""
# truth: conditional-collective accept collective-desync rank-exception uneven-inputs

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset


class Records(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        return {"text": f"{i} " * 5, "label": i % 4}


def parse(record, i):
    if i == 333:
        raise ValueError(f"record {i} is corrupt")
    return torch.tensor([float(w) / 640 for w in record["text"].split()]), record["label"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    records = Records()
    model = DDP(nn.Linear(5, 4))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for i in range(rank, len(records), world):
        try:
            x, y = parse(records[i], i)
            loss = F.cross_entropy(model(x[None]), torch.tensor([y]))
            opt.zero_grad()
            loss.backward()  # LINE
            opt.step()
        except ValueError as error:
            print("skipped", error)
    dist.barrier()  # LINE
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
