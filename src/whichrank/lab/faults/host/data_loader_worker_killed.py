"""A worker process of one rank's data loader is killed."""

import os
import signal

CAUSE = "dataloader-worker-death"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"


def inside(rank, point, value):
    if point == "workers":
        return 2
    if point == "sample" and rank.guilty and value >= rank.plan.step * 4:
        rank.strike()
        os.kill(os.getpid(), signal.SIGKILL)
    return None
