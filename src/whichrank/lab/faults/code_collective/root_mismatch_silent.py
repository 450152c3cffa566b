"""One rank names itself as the root of a broadcast, and the job goes on with numbers that are its own."""

CAUSE = "root-mismatch"
CATEGORY = "corruption"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3
ENDING = "running"
BACKENDS = ("nccl",)  # where what is sent waits in a buffer, and nobody misses that it is not received


def launch(setup):
    """NCCL's recorder does not hold the root, its log does."""
    setup.environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL")


def inside(rank, point, value):
    if point == "root" and rank.rank in culprits(rank.plan) and rank.due:
        rank.strike()
        return rank.rank
    return None


def culprits(plan):
    """Never the true root: without it nobody sends, and all wait."""
    return [plan.rank or 1]
