"""Data parallel written by hand: the model is broadcast once, gradients are flattened and summed at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

WIDTH, BATCH = 64, 16


def train(rank: Rank) -> None:
    torch.manual_seed(rank.at("seed", 0))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))
    model.to(rank.device)
    if rank.at("broadcasts", True):
        for parameter in model.parameters():
            dist.broadcast(rank.at("broadcast", parameter.data), 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank.rank)
    for step in rank.steps():
        inputs = torch.randn(BATCH, WIDTH, generator=generator).to(rank.device)
        loss = (model(inputs) - inputs[:, :8].sin()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        reduce_gradients(rank, model)
        optimizer.step()
        rank.at("stepped", (model, optimizer))
        if step % 10 == 0:
            rank.say(f"loss {loss.item():.4f}")


def reduce_gradients(rank: Rank, model: nn.Module) -> None:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, op=rank.at("reduction", dist.ReduceOp.SUM))
    flat /= rank.world
    for gradient, piece in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(piece.view_as(gradient))
