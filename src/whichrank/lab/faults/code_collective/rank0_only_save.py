"""Rank 0 alone saves a distributed checkpoint, a call that every rank has to make."""

from importlib import import_module

CAUSE = "rank0-only-collective"
CATEGORY = "hang"
WORKLOAD = "ddp"


def inside(rank, point, value):
    if point == "model":
        rank.model = value
    if point == "operations" and rank.due and rank.rank == 0:
        rank.strike()
        save(rank)


def save(rank):
    checkpoint = import_module("torch.distributed.checkpoint")
    checkpoint.save({"model": rank.model.state_dict()}, checkpoint_id=str(rank.folder / "tmp" / "checkpoint"))


def culprits(plan):
    return [0]
