"""A stage of a pipeline leaves out a receive, and its neighbour can't get rid of what it sends."""

CAUSE = "p2p-unmatched"
CATEGORY = "hang"
WORKLOAD = "pipeline"
# NCCL takes a small message into its own buffers and lets the sender go on.
BACKENDS = ("gloo",)


def inside(rank, point, value):
    if point == "expect" and rank.due and [rank.rank] == culprits(rank.plan):
        rank.strike()
        return "nothing"
    return None


def culprits(plan):
    return [1 + plan.rank % (plan.world - 1)]
