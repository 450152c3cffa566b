"""A library in one rank calls abort()."""

CAUSE = "rank-native-crash"
CATEGORY = "crash"
WORKLOAD = "sharded"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        import os

        rank.strike()
        os.abort()
