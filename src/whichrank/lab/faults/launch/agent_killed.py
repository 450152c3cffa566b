"""The launcher's agent, which hosts the store, is killed."""

import os
import signal
from pathlib import Path

CAUSE = "store-lost"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
ACCEPT = ("job-ended-from-outside", "rank-killed")


def launch(setup):
    setup.launcher = "torchrun"


def outside(job):
    pid = job.await_step(job.plan.rank, job.plan.step)
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    job.strike()
    os.kill(parent, signal.SIGKILL)


def culprits(plan):
    return []
