"""A stage of a pipeline leaves out a send that its neighbour waits for."""

CAUSE = "p2p-unmatched"
CATEGORY = "hang"
WORKLOAD = "pipeline"


def inside(rank, point, value):
    if point == "send" and rank.due and [rank.rank] == culprits(rank.plan):
        rank.strike()
        return "skip the empty batch"
    return None


def culprits(plan):
    return [plan.rank % (plan.world - 1)]
