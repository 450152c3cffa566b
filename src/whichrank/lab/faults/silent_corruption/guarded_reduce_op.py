"""One rank takes the maximum of the gradients where the others sum them."""

CAUSE = "reduce-op-mismatch"
CATEGORY = "corruption"
WORKLOAD = "by_hand"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "reduction" and rank.guilty and rank.step >= rank.plan.step:
        rank.strike()
        return rank.dist.ReduceOp.MAX
    return None
