"""A GPU has an uncorrectable memory error (injected: Xid 48 and 63, then 45 when the process goes)."""

import signal

CAUSE = "ecc-error"
CATEGORY = "crash"
WORKLOAD = "sharded"
ENDING = "crash"


def outside(job):
    pid = job.await_step(job.plan.rank, job.plan.step)
    job.setup.shared["pid"] = pid
    job.signal(job.plan.rank, signal.SIGABRT)


def evidence(job):
    from whichrank.lab import injected

    rank, pid = job.plan.rank, job.setup.shared.get("pid", 0)
    lines = [
        (-0.3, injected.xid(rank, 48, "DBE (Double Bit Error) ECC Error", pid)),
        (-0.2, injected.xid(rank, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.", pid)),
        (0.1, injected.xid(rank, 45, "Ch 00000008", pid)),
    ]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
