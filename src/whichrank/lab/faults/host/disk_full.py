"""The file system of the checkpoints is full."""

from pathlib import Path

CAUSE = "disk-full"
CATEGORY = "crash"
WORKLOAD = "phases"
ENDING = "crash"


def inside(rank, point, value):
    if point == "checkpoint" and rank.step >= rank.plan.step:
        rank.strike()
        # A device of the kernel that is always full.
        return Path("/dev/full").open("wb", buffering=0)
    return None


def culprits(plan):
    return [0]
