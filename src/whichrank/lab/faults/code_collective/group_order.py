"""At the end of an epoch one rank uses the group of all ranks before its row's, the others after it."""

CAUSE = "process-group-order"
CATEGORY = "hang"
WORKLOAD = "tensor_data"
LEAST_WORLD = 3


def inside(rank, point, value):
    if point == "grid":
        rank.grid = value
    if point == "gradients" and rank.due:
        rank.strike()
        end_epoch(rank, row_first=not rank.guilty)


def end_epoch(rank, row_first):
    if row_first:
        share_vocabulary(rank)
        share_score(rank)
    else:
        share_score(rank)
        share_vocabulary(rank)


def share_vocabulary(rank):
    rank.dist.all_reduce(rank.tensor(48), group=rank.grid.tp)


def share_score(rank):
    rank.dist.all_reduce(rank.tensor(24))
