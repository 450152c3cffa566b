"""Evidence of hardware faults in the formats of the programs that report them, for drills on machines without it.

The shapes are those of the NVIDIA kernel driver, nvidia-smi, mlx5 and NCCL; places, times and pids are the drill's.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

from whichrank.lab.job import Job

DMESG = "host/dmesg.txt"
SMI = "host/nvidia-smi.csv"
SMI_REPORT = "host/nvidia-smi.before.txt"


def struck_at(job: Job) -> float:
    """When the fault began, by the clock."""
    try:
        return float((job.folder / "struck").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return time.time()


def bus(rank: int) -> str:
    """The PCI address of the GPU that a rank would use on a host with eight."""
    return f"0000:{0x18 + 0x10 * rank:02x}:00"


def kernel_log(job: Job, *lines: tuple[float, str]) -> bytes:
    """As `dmesg --time-format iso` prints it: seconds from the fault, and the message."""
    begin = struck_at(job)
    boring = [(-3600.0, "systemd[1]: Started Session 4 of User train."), (-1800.0, "perf: interrupt took too long")]
    text = "".join(f"{_iso(begin + after)} {message}\n" for after, message in [*boring, *lines])
    return text.encode()


def xid(rank: int, number: int, detail: str, pid: int | str = "'<unknown>'") -> str:
    name = "<unknown>" if isinstance(pid, str) else "python3"
    return f"NVRM: Xid (PCI:{bus(rank)}): {number}, pid={pid}, name={name}, {detail}"


def gpus_in_use(job: Job) -> bytes:
    """As `nvidia-smi -q` prints it before the fault: one GPU per rank, with its process."""
    stamp = datetime.fromtimestamp(struck_at(job) - 60, timezone.utc).strftime("%a %b %d %H:%M:%S %Y")
    lines = [
        "==============NVSMI LOG==============",
        "",
        f"Timestamp                                 : {stamp}",
        "Driver Version                            : 580.159.04",
        "",
        f"Attached GPUs                             : {job.plan.world}",
    ]
    for rank in range(job.plan.world):
        lines += [
            f"GPU 0000{bus(rank).upper()}.0",
            "    Product Name                          : NVIDIA H100 80GB HBM3",
            f"    GPU UUID                              : {_uuid(rank)}",
            f"    Minor Number                          : {rank}",
            "    Processes",
            f"        Process ID                        : {job.pid(rank)}",
            "            Type                          : C",
            "            Name                          : python3",
        ]
    return ("\n".join(lines) + "\n").encode()


def gpus(world: int, hot: int | None = None) -> bytes:
    """As `nvidia-smi --query-gpu=… --format=csv` prints it, one GPU per rank; one may be throttled by heat."""
    head = (
        "index, uuid, pci.bus_id, name, temperature.gpu, power.draw [W], clocks.current.sm [MHz], clocks.max.sm [MHz], "
        "clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.sw_thermal_slowdown, "
        "ecc.errors.uncorrected.volatile.total"
    )
    rows = [head]
    for rank in range(world):
        slow = rank == hot
        rows.append(
            f"{rank}, {_uuid(rank)}, 0000{bus(rank).upper()}.0, NVIDIA H100 80GB HBM3, "
            f"{93 if slow else 61}, {310.2 if slow else 640.1:.2f} W, {1005 if slow else 1980} MHz, 1980 MHz, "
            f"{'Active' if slow else 'Not Active'}, {'Active' if slow else 'Not Active'}, 0"
        )
    return ("\n".join(rows) + "\n").encode()


def _uuid(rank: int) -> str:
    return f"GPU-{rank:08x}-1111-2222-3333-444444444444"


def _iso(moment: float) -> str:
    stamp = datetime.fromtimestamp(moment, timezone.utc)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S,%f") + "+00:00"
