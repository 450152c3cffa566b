"""One rank's training code raises an exception."""

CAUSE = "rank-exception"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def inside(rank, point, value):
    if point == "batch" and rank.guilty and rank.due:
        rank.strike()
        label_of({"cat": 0, "dog": 1}, "bird")


def label_of(labels, name):
    return labels[name]
