"""One rank is slower than the others at every step."""

import time

CAUSE = "straggler"
CATEGORY = "slow"
WORKLOAD = "tensor_data"
ENDING = "running"


def inside(rank, point, value):
    if point == "forward" and rank.guilty:
        time.sleep(rank.plan.pace_s)
