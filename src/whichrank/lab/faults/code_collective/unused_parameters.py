"""One rank's forward pass leaves out a branch whose gradients DistributedDataParallel waits for."""

CAUSE = "unused-parameters"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def inside(rank, point, value):
    if point == "operations":
        return []  # metrics stay with each rank: the gradients are all that is shared
    if point == "with_branch" and rank.guilty and rank.due:
        rank.strike()
        return False
    return None
