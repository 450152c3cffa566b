"""A variable has a value that torch refuses."""

CAUSE = "wrong-environment"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def launch(setup):
    setup.environment["TORCH_DISTRIBUTED_DEBUG"] = "DETIAL"


def culprits(plan):
    return None
