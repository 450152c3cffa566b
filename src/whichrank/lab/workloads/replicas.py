"""Data parallel with a sampler, a schedule and checkpoints: everything that replicas must have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch._dynamo  # as every optimizer does: before the ranks are forked
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichrank.lab.workloads.rank import Rank

WIDTH, LAYERS, BATCH, SAMPLES = 64, 8, 16, 4096
SAVE_EVERY = 10


def train(rank: Rank) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.05))]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 8)).to(rank.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rank.at("rate", 1e-3))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=rank.at("length", 500))
    resume(rank, model)
    rank.at("model", model)
    batches = samples(rank)
    for step in rank.steps():
        inputs, target = next(batches)
        inputs = rank.at("batch", inputs.to(rank.device))
        loss = nn.functional.mse_loss(model(inputs), target.to(rank.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        rank.at("stepped", (model.module, optimizer))
        if step % SAVE_EVERY == SAVE_EVERY - 1 and rank.rank == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, rank.folder / f"checkpoint-{step}.pt")
        if step % 10 == 0:
            rank.say(f"loss {loss.item():.4f}")


def resume(rank: Rank, model: DistributedDataParallel) -> None:
    """Every rank loads the checkpoint of an earlier run by itself."""
    earlier = {
        name: value + 0.01 if value.is_floating_point() else value for name, value in model.module.state_dict().items()
    }
    for name, value in rank.at("checkpoint", earlier).items():
        model.module.state_dict()[name].copy_(value)


def samples(rank: Rank) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
    data = TensorDataset(inputs, inputs[:, :8].sin() + inputs[:, 8:16])
    sampler: DistributedSampler[int] = DistributedSampler(
        data, num_replicas=rank.world, rank=rank.rank, seed=rank.at("seed", 0)
    )
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    for epoch in range(1000):
        sampler.set_epoch(rank.at("epoch", epoch))
        yield from loader
