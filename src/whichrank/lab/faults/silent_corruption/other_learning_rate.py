"""One rank steps with another learning rate."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "rate" and rank.guilty:
        rank.strike()
        return 2e-3
    return None
