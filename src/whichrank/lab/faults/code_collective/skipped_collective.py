"""One rank leaves out a reduction of a group and goes on."""

CAUSE = "conditional-collective"
CATEGORY = "hang"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3


def inside(rank, point, value):
    if point == "gradients" and rank.guilty and rank.due:
        rank.strike()
        return [value[0], value[2]]
    return None
