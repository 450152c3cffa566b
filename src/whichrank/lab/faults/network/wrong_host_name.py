"""The address of the store is a name that no host knows."""

CAUSE = "hostname-resolution"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def launch(setup):
    setup.launcher = "fork"
    setup.environment["MASTER_ADDR"] = "trainer-0.nowhere.invalid"
    setup.plan = setup.plan._replace(timeout_s=10.0)


def outside(job):
    job.strike()


def culprits(plan):
    return []
