"""A rank's process is stopped, as by a debugger or a freezer."""

import signal

CAUSE = "rank-frozen"
CATEGORY = "hang"
WORKLOAD = "sharded"


def outside(job):
    job.await_step(job.plan.rank, job.plan.step)
    job.signal(job.plan.rank, signal.SIGSTOP)
