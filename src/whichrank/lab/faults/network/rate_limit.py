"""The cable of one host carries 50 Mbit/s and no more."""

CAUSE = "slow-network"
CATEGORY = "slow"
WORKLOAD = "wide"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
ENDING = "running"
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab.hosts import spread

    spread(setup)


def outside(job):
    from whichrank.lab import wires
    from whichrank.lab.hosts import strike

    strike(job, wires.limit, "50mbit")


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
