"""A data loader of its own on every rank, and gradients reduced for every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

BATCH, WIDTH = 4, 32


class Samples(Dataset[torch.Tensor]):
    """As many samples as the steps of the plan need, unless a fault takes some away."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.count = rank.at("samples", rank.plan.steps * BATCH)

    def __len__(self) -> int:
        return int(self.count)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.rank.at("sample", index)
        item: torch.Tensor = self.rank.at("item", torch.full((WIDTH,), float(index)))
        return item


def train(rank: Rank) -> None:
    batches = iter(DataLoader(Samples(rank), batch_size=BATCH, num_workers=rank.at("workers", 0)))
    for _ in rank.steps():
        batch = next(batches, None)
        if batch is None:
            break
        reduce_gradients(rank, batch.to(rank.device))
        if rank.step % 5 == 0:
            rank.say("loss 0.5")


def reduce_gradients(rank: Rank, batch: torch.Tensor) -> None:
    rank.at("forward")
    for size in (1024, 256):
        dist.all_reduce(batch.mean() * rank.tensor(size))
