"""A rank asks for more host memory than its limit allows."""

from pathlib import Path

CAUSE = "host-out-of-memory"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"


def inside(rank, point, value):
    if point == "sample" and rank.guilty and rank.due:
        import resource

        rank.strike()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
        rank.cache = [bytearray(8 << 20) for _ in range(1000)]
