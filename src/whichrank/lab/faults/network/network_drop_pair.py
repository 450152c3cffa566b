"""Between two hosts every packet is dropped, while the job runs; both still reach the others."""

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
    from whichrank.lab.hosts import struck_host

    network = job.setup.shared["network"]
    one = struck_host(job.plan, network)
    # Neighbours in the ring: those that talk to each other.
    other = network.hosts[(network.hosts.index(one) + 1) % len(network.hosts)]
    job.await_step(job.plan.rank, job.plan.step)
    job.strike()
    wires.drop(network, one, other)


def culprits(plan):
    return []
