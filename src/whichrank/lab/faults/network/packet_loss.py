"""One host loses five per cent of its packets, in both directions."""

CAUSE = "packet-loss"
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

    strike(job, wires.lose, percent=5)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
