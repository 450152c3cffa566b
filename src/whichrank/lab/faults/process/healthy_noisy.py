"""Nothing that matters: warnings, caught exceptions, a connection tried again, a pause, a slow evaluation."""

import socket
import sys
import time
import traceback
import warnings
from contextlib import suppress

CAUSE = "healthy"
CATEGORY = "healthy"
WORKLOAD = "phases"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward":
        make_noise(rank, rank.step)
    if point == "evaluate" and rank.step > rank.plan.step and rank.rank == 0 and not hasattr(rank, "evaluated"):
        rank.evaluated = time.sleep(8)


def make_noise(rank, step):
    if step == 3:
        warnings.warn("nn.quack is deprecated, use nn.duck", DeprecationWarning, stacklevel=2)
        sys.stderr.write("WARNING: NCCL_SOCKET_IFNAME is not set\nERROR in telemetry: will try again\n")
    if step == rank.plan.step and rank.guilty:
        try:
            raise RuntimeError("Connection reset by peer")
        except RuntimeError:
            traceback.print_exc()
    if step == rank.plan.step + 2:
        for _ in range(3):
            with suppress(OSError), socket.socket() as probe:
                probe.connect(("127.0.0.1", 1))
    if step == rank.plan.step + 4 and rank.guilty:
        time.sleep(3)


def outside(job):
    import signal

    job.await_step(job.plan.rank, job.plan.step + 6)
    job.signal(job.plan.rank, signal.SIGSTOP)
    time.sleep(2)
    job.signal(job.plan.rank, signal.SIGCONT)


def culprits(plan):
    return []
