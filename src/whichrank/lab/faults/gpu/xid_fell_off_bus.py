"""A GPU falls off the bus, and its rank dies (injected: Xid 79 in the kernel log)."""

import signal

CAUSE = "gpu-fell-off-bus"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def outside(job):
    job.await_step(job.plan.rank, job.plan.step)
    job.signal(job.plan.rank, signal.SIGABRT)


def evidence(job):
    from whichrank.lab import injected

    rank = job.plan.rank
    lines = [(-0.2, injected.xid(rank, 79, "GPU has fallen off the bus."))]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
