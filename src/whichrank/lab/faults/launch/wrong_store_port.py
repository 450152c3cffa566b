"""One rank looks for the store at another port than the rest."""

CAUSE = "rendezvous-endpoint"
ACCEPT = ("missing-rank-at-init",)
CATEGORY = "hang"
WORKLOAD = "ddp"


def launch(setup):
    setup.launcher = "fork"


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        import os

        rank.strike()
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) ^ 1)


def culprits(plan):
    # The store is where rank 0 opens it: if rank 0 is at another port, all others are alone.
    return [plan.rank]
