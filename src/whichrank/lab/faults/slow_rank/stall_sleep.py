"""One rank sleeps between two attempts of something that the others do not need."""

import time

CAUSE = "rank-stuck-in-user-code"
CATEGORY = "hang"
WORKLOAD = "ddp"


def inside(rank, point, value):
    if point == "metrics" and rank.guilty and rank.due:
        rank.strike()
        report_metrics(value)


def report_metrics(metrics):
    for attempt in range(1, 10):
        time.sleep(600 * attempt)
