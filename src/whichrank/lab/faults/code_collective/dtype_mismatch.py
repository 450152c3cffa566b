"""One rank brings another data type to a reduction than the others."""

CAUSE = "dtype-mismatch"
CATEGORY = "crash"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3
ENDING = "crash"


def inside(rank, point, value):
    if point == "norm" and rank.guilty and rank.due:
        rank.strike()
        return value.double()
    return None
