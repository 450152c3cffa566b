"""One rank names another root of a broadcast than the others."""

CAUSE = "root-mismatch"
CATEGORY = "hang"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3


def launch(setup):
    if setup.plan.backend == "nccl":  # its recorder does not hold the argument, its log does
        setup.environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}


def inside(rank, point, value):
    if point == "root" and rank.guilty and rank.due:
        rank.strike()
        return rank.rank or rank.world - 1
    return None


def culprits(plan):
    """Ranks that the root has reached go on, and nobody knows what they named: often two are left, one against one."""
    return
