"""One rank starts two operations of a group in the other order, as an iteration over a set would."""

CAUSE = "collective-order"
CATEGORY = "hang"
WORKLOAD = "ddp"


def inside(rank, point, value):
    if point != "operations":
        return None
    names = ["metrics", "progress"]
    if rank.guilty and rank.due:
        rank.strike()
        names.reverse()
    return [lambda metrics: share(rank, dict.fromkeys(names, metrics))]


def share(rank, numbers):
    """Both are started before either is waited for."""
    works = []
    for name, tensor in numbers.items():
        if name == "metrics":
            works.append(rank.dist.all_reduce(tensor.clone(), async_op=True))
        else:
            works.append(rank.dist.broadcast(tensor.clone(), 0, async_op=True))
    for work in works:
        work.wait()
