"""Ranks of one host use the same GPU."""

CAUSE = "duplicate-gpu"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)


def inside(rank, point, value):
    if point == "start":
        import os

        rank.strike()
        os.environ.pop("NCCL_HOSTID", None)


def culprits(plan):
    return list(range(plan.world))
