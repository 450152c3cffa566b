"""Rank 0 waits at a barrier to which nobody else comes."""

CAUSE = "rank0-only-collective"
CATEGORY = "hang"
WORKLOAD = "phases"
ACCEPT = ("conditional-collective",)


def inside(rank, point, value):
    if point == "forward" and rank.due and rank.rank == 0:
        rank.strike()
        log_learning_rate(rank)


def log_learning_rate(rank):
    """Under `if rank == 0`, with a barrier that was meant for all."""
    rank.say("lr 0.01")
    rank.dist.barrier()


def culprits(plan):
    return [0]
