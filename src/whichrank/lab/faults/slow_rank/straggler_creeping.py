"""One rank becomes slower from step to step."""

import time

CAUSE = "straggler"
CATEGORY = "slow"
WORKLOAD = "ddp"
ENDING = "running"


def inside(rank, point, value):
    if point == "forward" and rank.guilty:
        time.sleep(max(0, rank.step - rank.plan.step) * 0.1 * rank.plan.pace_s)
