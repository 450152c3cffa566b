"""The hosts send jumbo frames, and the port of one of them at the switch swallows all that is longer than 1,500."""

CAUSE = "mtu-mismatch"
CATEGORY = "hang"
WORKLOAD = "wide"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab import wires
    from whichrank.lab.hosts import spread, struck_host

    network = spread(setup, mtu=9000)
    wires.shrink_path_mtu(network, struck_host(setup.plan, network), 1514)


def outside(job):
    job.await_step(job.plan.rank, 0)
    job.strike()


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
