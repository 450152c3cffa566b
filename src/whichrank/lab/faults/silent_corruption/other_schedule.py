"""The schedule of one rank has another length, as when it is computed from local data."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "length" and rank.guilty:
        rank.strike()
        return 310
    return None
