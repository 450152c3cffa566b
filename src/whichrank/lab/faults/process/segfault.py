"""A rank dies in native code, of a segmentation fault."""

CAUSE = "rank-native-crash"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        import ctypes

        rank.strike()
        ctypes.string_at(8)
