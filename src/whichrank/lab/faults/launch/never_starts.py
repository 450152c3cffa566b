"""The launcher starts one rank fewer than the world has."""

CAUSE = "missing-rank-at-init"
CATEGORY = "hang"
WORKLOAD = "sharded"
ACCEPT = ("world-size-mismatch",)


def launch(setup):
    setup.launcher = "fork"
    setup.environment |= {"WORLD_SIZE": str(setup.plan.world), "WHICHRANK_DRILL_LEAVE_OUT": str(setup.plan.rank)}
