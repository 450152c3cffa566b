"""A GPU is throttled by heat and its rank is late at every step (injected: nvidia-smi's report)."""

CAUSE = "gpu-thermal-or-power"
CATEGORY = "slow"
WORKLOAD = "sharded"
ENDING = "running"
# On a machine with GPUs the evidence of the real ones would lie beside.
BACKENDS = ("gloo",)


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.step >= rank.plan.step:
        import time

        rank.strike()
        time.sleep(0.15)


def evidence(job):
    from whichrank.lab import injected

    state = injected.gpus(job.plan.world, hot=job.plan.rank)
    return {injected.SMI: state, injected.SMI_REPORT: injected.gpus_in_use(job)}
