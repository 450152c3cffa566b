"""Faults of a GPU that nobody can make here: its rank dies, and the kernel log of the driver is injected."""

import signal

CATEGORY = "crash"
ENDING = "crash"

ROWS = {
    "xid_fell_off_bus": {
        "SUMMARY": "A GPU falls off the bus, and its rank dies (injected: Xid 79 in the kernel log).",
        "CAUSE": "gpu-fell-off-bus", "WORKLOAD": "ddp",
        "XIDS": [(-0.2, 79, "GPU has fallen off the bus.")], "NAMES_PROCESS": False,
    },
    "xid_firmware": {
        "SUMMARY": "The firmware of a GPU stops answering (injected: Xid 119).",
        "CAUSE": "xid-gpu-fault", "WORKLOAD": "ddp", "DIES_BY": signal.SIGKILL,
        "XIDS": [
            (-6.0, 119,
             "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)."),
        ],
    },
    "xid_memory_error": {
        "SUMMARY": "A GPU has an uncorrectable memory error (injected: Xid 48 and 63, then 45 when the process goes).",
        "CAUSE": "ecc-error", "WORKLOAD": "sharded",
        "XIDS": [
            (-0.3, 48, "DBE (Double Bit Error) ECC Error"),
            (-0.2, 63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
            (0.1, 45, "Ch 00000008"),
        ],
    },
    "xid_nvlink": {
        "SUMMARY": "An NVLink of one GPU fails (injected: Xid 74).",
        "CAUSE": "nvlink-fault", "WORKLOAD": "tensor_data",
        "XIDS": [(-0.2, 74, "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")],
    },
}  # fmt: skip
XIDS = []
DIES_BY = signal.SIGABRT
NAMES_PROCESS = True


def outside(job):
    job.setup.shared["pid"] = job.await_step(job.plan.rank, job.plan.step)
    job.signal(job.plan.rank, DIES_BY)


def evidence(job):
    from whichrank.lab import injected

    named = (job.setup.shared.get("pid", 0),) if NAMES_PROCESS else ()
    lines = [(when, injected.xid(job.plan.rank, code, detail, *named)) for when, code, detail in XIDS]
    return {injected.DMESG: injected.kernel_log(job, *lines), injected.SMI_REPORT: injected.gpus_in_use(job)}
