"""The firewall of the first host refuses the rendezvous port to the others."""

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
    wires.reject_ports(network.hosts[0], setup.environment["MASTER_PORT"])


def outside(job):
    job.strike()


def culprits(plan):
    return None
