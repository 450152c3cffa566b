"""An NVLink of one GPU fails (injected: Xid 74)."""

import signal

CAUSE = "nvlink-fault"
CATEGORY = "crash"
WORKLOAD = "tensor_data"
ENDING = "crash"


def outside(job):
    pid = job.await_step(job.plan.rank, job.plan.step)
    job.setup.shared["pid"] = pid
    job.signal(job.plan.rank, signal.SIGABRT)


def evidence(job):
    from whichrank.lab import injected

    rank, pid = job.plan.rank, job.setup.shared.get("pid", 0)
    detail = "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    lines = [(-0.2, injected.xid(rank, 74, detail, pid))]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
