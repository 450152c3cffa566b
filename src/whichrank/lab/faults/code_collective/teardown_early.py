"""One rank destroys its process group and leaves while the others still train."""

import sys

CAUSE = "teardown-hang"
CATEGORY = "crash"
WORKLOAD = "sharded"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        stop_training(rank)


def stop_training(rank):
    rank.say("the target loss is reached")
    rank.dist.destroy_process_group()
    sys.exit(0)
