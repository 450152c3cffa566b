"""A rank runs out of file descriptors."""

from pathlib import Path

CAUSE = "fd-limit"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"


def inside(rank, point, value):
    if point == "sample" and rank.guilty and rank.due:
        import resource

        rank.strike()
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        rank.shards = [Path(__file__).open() for _ in range(200)]  # noqa: SIM115 - kept open, that is the point
