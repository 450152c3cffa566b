"""A pipeline: activations go down the ranks, gradients come back up, and the norm is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from whichrank.lab.workloads.rank import Rank

SIZE = 1024


def train(rank: Rank) -> None:
    for _ in rank.steps():
        if rank.at("turn", "pipeline") == "pipeline":
            forward(rank)
            backward(rank)
        dist.all_reduce(rank.tensor(8))
        if rank.step % 5 == 0:
            rank.say("loss 0.5")


def forward(rank: Rank) -> None:
    activation = rank.tensor(SIZE)
    if rank.rank > 0 and rank.at("expect", "activation") == "activation":
        dist.recv(rank.at("receive", activation), rank.at("from", rank.rank - 1))
    rank.at("forward")
    if rank.rank < rank.world - 1 and rank.at("send", "send") == "send":
        dist.send(activation, rank.rank + 1)


def backward(rank: Rank) -> None:
    gradient = rank.tensor(SIZE)
    if rank.rank < rank.world - 1:
        dist.recv(gradient, rank.rank + 1)
    if rank.rank > 0 and rank.at("send_back", "send") == "send":
        dist.send(gradient, rank.rank - 1)
