"""The first host drops what comes to the rendezvous port: the others never find the store."""

CAUSE = "firewall"
CATEGORY = "hang"
WORKLOAD = "ddp"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab import wires
    from whichrank.lab.hosts import spread

    network = spread(setup)
    wires.close_ports(network.hosts[0], setup.environment["MASTER_PORT"])


def outside(job):
    job.strike()


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, 0)
