"""The ranks of one host are told to use an interface that it does not have."""

import os

CAUSE = "no-usable-interface"
CATEGORY = "crash"
WORKLOAD = "ddp"
LEAST_WORLD = 3
ENDING = "crash"
BACKENDS = ("gloo",)


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        rank.strike()
        os.environ["GLOO_SOCKET_IFNAME"] = "eth77"
