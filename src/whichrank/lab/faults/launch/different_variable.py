"""One rank runs with another debug level, which adds collectives of its own."""

CAUSE = "wrong-environment"
CATEGORY = "hang"
WORKLOAD = "ddp"
LEAST_WORLD = 3


def launch(setup):
    setup.launcher = "torchrun"
    setup.rank_variables = {setup.plan.rank: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}
