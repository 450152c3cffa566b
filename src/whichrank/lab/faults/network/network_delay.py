"""The way to and from one host takes 10 ms longer each."""

CAUSE = "slow-network"
CATEGORY = "slow"
WORKLOAD = "wide"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
ENDING = "running"
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab.hosts import host_number, spread

    spread(setup, relayed=frozenset({host_number(setup.plan, setup.plan.rank)}))


def outside(job):
    from whichrank.lab import wires
    from whichrank.lab.hosts import strike

    strike(job, wires.delay, milliseconds=10)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
