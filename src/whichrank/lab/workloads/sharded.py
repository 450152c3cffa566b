"""Sharded parameters: gathered before use, gradients reduced and scattered after, as FSDP does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

LAYERS, SHARD = 3, 512


def train(rank: Rank) -> None:
    shards = [rank.tensor(SHARD) for _ in range(LAYERS)]
    for _ in rank.steps():
        for layer in rank.at("layers", list(range(LAYERS))):
            gather(rank, shards[layer])
        rank.at("forward")
        for layer in reversed(range(LAYERS)):
            scatter(rank, shards[layer])
        if rank.step % 5 == 0:
            rank.say("loss 0.5")


def gather(rank: Rank, shard: torch.Tensor) -> None:
    whole = torch.empty(SHARD * rank.world, device=rank.device)
    dist.all_gather_into_tensor(whole, rank.at("shard", shard))


def scatter(rank: Rank, shard: torch.Tensor) -> None:
    whole = torch.ones(SHARD * rank.world, device=rank.device)
    dist.reduce_scatter_tensor(torch.empty_like(shard), rank.at("whole", whole))
