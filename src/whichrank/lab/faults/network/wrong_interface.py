"""All hosts are told to talk over their loopback interfaces, which no other host reaches."""

CAUSE = "wrong-interface"
CATEGORY = "hang"
WORKLOAD = "ddp"
NEEDS = ("namespaces",)
ENDING = "crash"
BACKENDS = ("gloo",)


def launch(setup):
    from whichrank.lab.hosts import spread

    spread(setup)
    setup.environment["GLOO_SOCKET_IFNAME"] = "lo"


def outside(job):
    job.strike()


def culprits(plan):
    return []
