"""A rank starts and never comes to the creation of the process group."""

CAUSE = "missing-rank-at-init"
CATEGORY = "hang"
WORKLOAD = "ddp"


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        import time

        rank.strike()
        time.sleep(3600)
