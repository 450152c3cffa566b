"""One rank's model does not get what rank 0 broadcast: it goes into a copy."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "by_hand"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "seed":
        return rank.rank  # made equal by the broadcast, and by nothing else
    if point == "broadcast" and rank.rank in culprits(rank.plan):
        rank.strike()
        return value.clone()
    return None


def culprits(plan):
    """Never rank 0, which sends."""
    return [plan.rank or 1]
