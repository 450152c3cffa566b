"""All ranks leave out a branch whose gradients DistributedDataParallel waits for."""

CAUSE = "unused-parameters"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def inside(rank, point, value):
    if point == "with_branch" and rank.due:
        rank.strike()
        return False
    return None


def culprits(plan):
    return None
