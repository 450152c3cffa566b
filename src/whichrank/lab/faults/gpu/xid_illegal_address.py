"""A kernel of one rank reads where it must not (injected: Xid 31, the program's own fault)."""

CAUSE = "xid-application-fault"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
ACCEPT = ("cuda-illegal-access",)


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        raise RuntimeError(
            "CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
            "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
        )


def evidence(job):
    from whichrank.lab import injected

    detail = (
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x7f2a_b4000000. Fault "
        "is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )
    lines = [(-0.1, injected.xid(job.plan.rank, 31, detail, job.pid(job.plan.rank)))]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
