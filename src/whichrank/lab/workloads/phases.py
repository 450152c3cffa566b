"""Training with an evaluation and a checkpoint now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

WIDTH = 64
EVALUATE_EVERY, SAVE_EVERY = 4, 5


def train(rank: Rank) -> None:
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH).to(rank.device)
    for step in rank.steps():
        reduce_gradients(rank, model)
        if step % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            evaluate(rank, model)
        if step % SAVE_EVERY == SAVE_EVERY - 1:
            save_checkpoint(rank, model)
        if step % 5 == 0:
            rank.say("loss 0.5")


def reduce_gradients(rank: Rank, model: nn.Module) -> None:
    model = rank.at("compile", model)
    rank.at("forward")
    model(rank.tensor(4, WIDTH)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(rank.at("gradient", parameter.grad))


def evaluate(rank: Rank, model: nn.Module) -> None:
    """Every rank its part; then the results are summed."""
    with torch.no_grad():
        score = model(rank.tensor(8, WIDTH)).mean()
    rank.at("evaluate", model)
    for operation in rank.at("scores", [lambda: dist.all_reduce(score)]):
        operation()


def save_checkpoint(rank: Rank, model: nn.Module) -> None:
    """Rank 0 writes, the others wait."""
    if rank.rank == rank.at("writer", 0):
        path = rank.folder / "checkpoint.pt"
        with path.open("wb") as stream:
            torch.save({"model": model.state_dict(), "step": rank.step}, rank.at("checkpoint", stream))
    dist.barrier()
