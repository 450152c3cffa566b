"""The cable of one host is pulled at the switch while the job runs."""

CAUSE = "host-lost"
CATEGORY = "hang"
WORKLOAD = "wide"
ACCEPT = ("ib-link-flap",)
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab.hosts import spread

    spread(setup)


def outside(job):
    from whichrank.lab import wires
    from whichrank.lab.hosts import strike

    strike(job, wires.link_down)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
