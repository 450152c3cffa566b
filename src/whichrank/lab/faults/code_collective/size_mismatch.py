"""One rank brings more elements to a reduction than the others."""

CAUSE = "size-mismatch"
CATEGORY = "crash"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3
ENDING = "crash"


def inside(rank, point, value):
    if point == "norm" and rank.guilty and rank.due:
        rank.strike()
        return rank.tensor(320)
    return None
