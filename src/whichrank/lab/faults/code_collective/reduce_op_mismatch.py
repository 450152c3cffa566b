"""One rank takes the maximum where the others sum, and the job goes on with wrong numbers."""

CAUSE = "reduce-op-mismatch"
CATEGORY = "corruption"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3
ENDING = "running"
BACKENDS = ("nccl",)  # Gloo leaves no trace of the operator


def launch(setup):
    """The operator is in NCCL's own log and nowhere else."""
    setup.environment.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="COLL")


def inside(rank, point, value):
    if point == "norm_reduction" and rank.guilty and rank.step >= rank.plan.step:
        rank.strike()
        return rank.dist.ReduceOp.MAX
    return None
