"""One rank shuffles its samples with another seed: some are seen twice, others not at all."""

CAUSE = "data-order"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "seed" and rank.guilty:
        rank.strike()
        return 99
    return None
