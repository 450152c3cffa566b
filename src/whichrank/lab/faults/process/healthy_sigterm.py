"""A person or a scheduler ends a job that is well, by SIGTERM."""

import os
import signal
from pathlib import Path

CAUSE = "job-ended-from-outside"
CATEGORY = "crash"
WORKLOAD = "ddp"
ACCEPT = ("healthy", "unknown")
ENDING = "crash"


def outside(job):
    """To `whichrank run`, or to the launcher below it."""
    pid = job.await_step(job.plan.rank, job.plan.step)
    job.strike()
    if job.plan.dice().random() < 0.5:
        job.process.terminate()
    else:
        os.kill(parent_of(pid), signal.SIGTERM)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def culprits(plan):
    return []
