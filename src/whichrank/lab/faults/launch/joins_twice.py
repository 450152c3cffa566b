"""Two processes come with the same rank, and another rank is missing."""

CAUSE = "world-size-mismatch"
CATEGORY = "hang"
WORKLOAD = "ddp"
ACCEPT = ("missing-rank-at-init",)


def launch(setup):
    # A launch script that counts wrongly: the rank of the plan is given the number of its neighbour.
    setup.launcher = "torchrun"
    rank = setup.plan.rank
    setup.rank_variables = {rank: {"RANK": str(neighbour(setup.plan))}}


def neighbour(plan):
    return (plan.rank + 1) % plan.world


def culprits(plan):
    return [plan.rank]
