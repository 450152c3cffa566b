"""One rank draws its model from another seed, and nobody broadcasts."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "by_hand"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "broadcasts":
        return 0  # False; None would leave it as it is
    if point == "seed" and rank.guilty:
        rank.strike()
        return 1234
    return None
