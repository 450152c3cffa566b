"""One rank names a root that is not in the group, and the library refuses the call."""

CAUSE = "invalid-collective-call"
CATEGORY = "crash"
WORKLOAD = "tensor_data"
ENDING = "crash"


def inside(rank, point, value):
    if point == "root" and rank.guilty and rank.due:
        rank.strike()
        return rank.world
    return None
