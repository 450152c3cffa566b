"""One rank reduces a number that the others do not, and goes on."""

CAUSE = "conditional-collective"
CATEGORY = "hang"
WORKLOAD = "ddp"
ACCEPT = ("rank0-only-collective",)


def inside(rank, point, value):
    if point == "operations" and rank.guilty and rank.due:
        rank.strike()
        return [lambda metrics: count_outliers(rank, metrics), *value]
    return None


def count_outliers(rank, metrics):
    """Only this rank has any, so only this rank counts them."""
    outliers = rank.tensor(1)
    rank.dist.all_reduce(outliers)
