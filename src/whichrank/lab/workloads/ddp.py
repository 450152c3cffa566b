"""Data parallel: a small network in DistributedDataParallel, metrics shared at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch._dynamo  # as every optimizer does: before the ranks are forked
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

WIDTH, BATCH = 64, 16


class Network(nn.Module):
    """Two layers, and a branch that a fault may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.branch = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: torch.Tensor, with_branch: bool = True) -> torch.Tensor:
        hidden: torch.Tensor = self.body(batch)
        return hidden + self.branch(batch) if with_branch else hidden


def train(rank: Rank) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(Network().to(rank.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rank.at("model", model)
    for _ in rank.steps():
        batch = rank.at("batch", torch.randn(BATCH, WIDTH, device=rank.device))
        loss = forward(rank, model, batch)
        loss = rank.at("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics = rank.at("metrics", torch.stack([loss.detach(), loss.detach() ** 2]))
        for operation in rank.at("operations", [share_metrics, agree_to_go_on]):
            operation(metrics)
        if rank.step % 5 == 0:
            rank.say(f"loss {loss.item():.4f}")


def forward(rank: Rank, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    rank.at("forward")
    output: torch.Tensor = model(batch, rank.at("with_branch", True))
    return output.pow(2).mean()


def share_metrics(metrics: torch.Tensor) -> None:
    dist.all_reduce(metrics)


def agree_to_go_on(metrics: torch.Tensor) -> None:
    dist.broadcast(torch.ones(1, device=metrics.device), 0)
