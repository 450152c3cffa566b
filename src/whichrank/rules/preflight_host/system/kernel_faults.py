"""The kernel log of the last day has a fault of this host's hardware.

What it finds: Xids and NVSwitch errors that blame the GPU, its memory, its bus or NVLink; fatal PCIe errors; memory
errors of the CPU; file servers that don't answer.

Why it happens: hardware that failed a job today will fail the next one.

How it decides: Xids of applications (13, 31, 43) and consequences (45) are left out: they say nothing about the
hardware. Corrected errors are left out as well.

Example: `NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`

Fix: `whichrank explain xid 79` says what the number means; reset or reboot as it says.

Limits: many containers may not read the kernel log; then it says so instead of "healthy".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.facts.hardware import xids
from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH104"
CAUSE = "xid-gpu-fault"
CHECK = "kernel-log"
PROBE = "kernel_log"
FIX = ("Look the number up (whichrank explain xid N); reset the GPU or reboot the host as it says.",)
_ALWAYS = {
    "gpu_lost": "a GPU fell off the bus",
    "gpu_init_failed": "the driver could not start a GPU",
    "nic_fault": "a network adapter reports a fault",
    "soft_lockup": "a CPU stood still",
    "io_error": "a disk or file system failed",
}
_BAD = ("bus", "memory", "nvlink", "gpu")


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    events = items(values, "events")
    bad = [(event, words) for event in events if (words := _fault(event))]
    # A server that came back is no fault of today's job.
    gone = {text(e, "device") for e in events if e.get("kind") == "server_silent"}
    gone -= {text(e, "device") for e in events if e.get("kind") == "server_back"}
    if not bad and not gone:
        return healthy("no fault of the hardware")
    if not bad:
        silent = next(e for e in events if e.get("kind") == "server_silent")
        return unhealthy("file server silent", text(silent, "words"), quote=text(silent, "words"))
    event, words = bad[-1]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    where = f" on {text(event, 'device')}" if text(event, "device") else ""
    return unhealthy(words, f"{words}{where}{more}: {text(event, 'words')}", quote=text(event, "words"))


def _fault(event: Mapping[str, Any]) -> str:
    kind, code = text(event, "kind"), event.get("code")
    if kind == "xid" and isinstance(code, int) and event.get("caused_by") is None:
        fact = xids.xid(code)
        blame = fact.blame if fact else "gpu"
        if fact and fact.severity == "varies" and event.get("fatal") == 0:
            return ""
        return f"Xid {code}" if blame in _BAD else ""
    if kind == "sxid" and event.get("fatal") == 1:
        return f"NVSwitch error {code}"
    if kind == "pcie_error" and text(event, "severity") in ("fatal", "nonfatal"):
        return f"{text(event, 'severity')} PCIe error"
    if kind == "machine_check" and "corrected" not in text(event, "words").lower():
        return "hardware error of the CPU or its memory"
    return _ALWAYS.get(kind, "")
