"""A rank ends quietly before it makes its process group; the others wait for it."""

CAUSE = "missing-rank-at-init"
CATEGORY = "hang"
WORKLOAD = "tensor_data"


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        import os

        rank.strike()
        os._exit(0)
