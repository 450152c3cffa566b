"""One sample of one rank's batch is not a number."""

CAUSE = "nan-origin"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "batch" and rank.guilty and rank.due:
        rank.strike()
        value[3, 5] = float("nan")
