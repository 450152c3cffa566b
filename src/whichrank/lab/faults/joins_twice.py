"""A rank is started twice: two processes come with the same number."""

CAUSE = "world-size-mismatch"
CATEGORY = "hang"
WORKLOAD = "ddp"


def launch(setup):
    setup.launcher = "fork"


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        import os

        rank.strike()
        os.fork()
