"""The firmware of a GPU stops answering (injected: Xid 119)."""

import signal

CAUSE = "xid-gpu-fault"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def outside(job):
    pid = job.await_step(job.plan.rank, job.plan.step)
    job.setup.shared["pid"] = pid
    job.signal(job.plan.rank, signal.SIGKILL)


def evidence(job):
    from whichrank.lab import injected

    rank, pid = job.plan.rank, job.setup.shared.get("pid", 0)
    detail = "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)."
    lines = [(-6.0, injected.xid(rank, 119, detail, pid))]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
