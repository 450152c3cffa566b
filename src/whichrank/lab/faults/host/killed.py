"""A rank's process is ended by SIGKILL."""

import signal

CAUSE = "rank-killed"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def outside(job):
    job.await_step(job.plan.rank, job.plan.step)
    job.signal(job.plan.rank, signal.SIGKILL)
