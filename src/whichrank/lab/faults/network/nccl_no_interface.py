"""NCCL is told to use a network interface that does not exist."""

CAUSE = "no-usable-interface"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)
ACCEPT = ("wrong-environment", "wrong-interface")


def launch(setup):
    setup.environment["NCCL_SOCKET_IFNAME"] = "nosuch0"


def culprits(plan):
    return None
