"""Tensor parallel times data parallel: every rank is in a row and a column, and in the world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank


def train(rank: Rank) -> None:
    grid = Grid(rank)
    rank.at("grid", grid)
    for _ in rank.steps():
        rank.at("forward")
        for operation in rank.at("operations", [grid.gather_activations, grid.reduce_activations]):
            operation()
        for operation in rank.at("gradients", [grid.reduce_gradients, grid.reduce_norm, grid.share_scale]):
            operation()
        if rank.step % 5 == 0:
            rank.say("loss 0.5")


class Grid:
    """The groups of a rank: `tp` with its neighbours, `dp` with its like in the other rows."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        width = 2 if rank.world % 2 == 0 else rank.world
        rows = [list(range(first, first + width)) for first in range(0, rank.world, width)]
        columns = [list(range(first, rank.world, width)) for first in range(width)]
        self.tp = _mine([dist.new_group(row, group_desc="tp") for row in rows], rows, rank.rank)
        self.dp = _mine([dist.new_group(column, group_desc="dp") for column in columns], columns, rank.rank)
        self.row = next(row for row in rows if rank.rank in row)

    def gather_activations(self) -> None:
        part = self.rank.at("activation", self.rank.tensor(64))
        dist.all_gather([torch.empty_like(part) for _ in self.row], part, group=self.tp)

    def reduce_activations(self) -> None:
        dist.all_reduce(self.rank.tensor(128), group=self.tp)

    def reduce_gradients(self) -> None:
        gradient = self.rank.at("gradient", self.rank.tensor(4096))
        dist.all_reduce(gradient, op=self.rank.at("reduction", dist.ReduceOp.SUM), group=self.dp)

    def reduce_norm(self) -> None:
        dist.all_reduce(
            self.rank.at("norm", self.rank.tensor(256)), op=self.rank.at("norm_reduction", dist.ReduceOp.SUM)
        )

    def share_scale(self) -> None:
        dist.broadcast(self.rank.at("scale", self.rank.tensor(16)), self.rank.at("root", 0))


def _mine(groups: list[dist.ProcessGroup | None], members: list[list[int]], rank: int) -> dist.ProcessGroup | None:
    return next(group for group, ranks in zip(groups, members, strict=True) if rank in ranks)
