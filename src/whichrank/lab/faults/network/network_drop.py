"""Between one host and all others every packet is dropped, while the job runs."""

CAUSE = "firewall"
CATEGORY = "hang"
WORKLOAD = "wide"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab.hosts import spread

    spread(setup)


def outside(job):
    from whichrank.lab import wires
    from whichrank.lab.hosts import strike

    strike(job, wires.drop)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
