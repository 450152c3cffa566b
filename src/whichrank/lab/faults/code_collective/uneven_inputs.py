"""One rank has fewer batches than the others and leaves the loop early."""

CAUSE = "uneven-inputs"
CATEGORY = "hang"
WORKLOAD = "loader"


def inside(rank, point, value):
    if point == "samples" and rank.guilty:
        return value * rank.plan.step // rank.plan.steps
    if point == "teardown" and rank.guilty:
        rank.strike()
    return None
