"""The link of one host goes down for two seconds and comes back; the job goes on."""

CAUSE = "ib-link-flap"
CATEGORY = "slow"
WORKLOAD = "wide"
ACCEPT = ("packet-loss",)
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

    strike(job, wires.flap, seconds=2.0)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
