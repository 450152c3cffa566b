"""A host's firewall lets the rendezvous through and drops what comes to the ports that the system chooses."""

CAUSE = "firewall"
CATEGORY = "hang"
WORKLOAD = "ddp"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab import wires
    from whichrank.lab.hosts import host_number, spread

    network = spread(setup)
    wires.close_ports(network.hosts[host_number(setup.plan, closed(setup.plan))], "30000-65535")


def outside(job):
    job.strike()


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, closed(plan))


def closed(plan):
    """Hosts connect to those before them: only one that several come after notices its firewall."""
    from whichrank.lab.hosts import count_for, host_number

    last = count_for(plan.world) - 3
    return next(rank for rank in range(plan.rank, -1, -1) if host_number(plan, rank) <= last)
