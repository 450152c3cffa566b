"""One rank names another root of a broadcast than the others."""

CAUSE = "root-mismatch"
CATEGORY = "hang"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3
BACKENDS = ("gloo",)  # NCCL hangs only if it is the root itself that names another


def inside(rank, point, value):
    if point == "root" and rank.guilty and rank.due:
        rank.strike()
        return rank.rank or rank.world - 1
    return None


def culprits(plan):
    """Ranks that the root has reached go on, and nobody knows what they named: often two are left, one against one."""
    return
