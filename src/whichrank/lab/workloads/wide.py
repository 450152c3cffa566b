"""Data parallel with gradients of a megabyte: enough to see what a network does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

LAYERS, SIZE = 4, 65_536


def train(rank: Rank) -> None:
    dist.barrier()  # small messages pass where large ones don't
    gradients = [rank.tensor(SIZE) for _ in range(LAYERS)]
    for _ in rank.steps():
        rank.at("forward")
        for gradient in gradients:
            reduce_gradient(gradient, rank.world)
        if rank.step % 5 == 0:
            rank.say(f"loss {gradients[0][0].item():.4f}")


def reduce_gradient(gradient: torch.Tensor, world: int) -> None:
    dist.all_reduce(gradient)
    gradient /= world
