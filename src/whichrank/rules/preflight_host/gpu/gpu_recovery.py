"""The driver itself asks for a reset of the GPU or a reboot of the host.

What it finds: a `GPU Recovery Action` other than "None" (drivers from R565), or "reset required" (older ones).

Why it happens: an earlier fault left the GPU in a state that only a reset or a reboot ends.

How it decides: by the driver's word, which knows more than any counter.

Example: `GPU 0: the driver asks for: Drain and Reset`

Fix: do what it says, in that order: drain, reset, reboot.

Limits: drivers before R535 don't tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items

CODE = "PREH103"
CAUSE = "xid-gpu-fault"
CHECK = "gpu-recovery"
PROBE = "gpus"
FIX = ("Do what the driver asks for before the job starts; keep the host out of jobs until then.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    told = False
    for gpu in items(values, "gpus"):
        state: Mapping[str, Any] = gpu.get("values") or {}
        index = gpu.get("index")
        named = (index,) if isinstance(index, int) else ()
        action = str(state.get("recovery_action", ""))
        told = told or bool(action) or "reset_required" in state
        if action and action.lower() not in ("none", "0", "n/a"):
            return unhealthy(action, f"GPU {index}: the driver asks for: {action}", gpus=named)
        if str(state.get("reset_required", "")).lower() == "yes":
            return unhealthy("reset required", f"GPU {index}: the driver says that it needs a reset", gpus=named)
    driver = next((str(gpu.get("driver")) for gpu in items(values, "gpus")), "")
    # "None" is read as "nothing there": a driver that knows the question and answers so is healthy.
    if not told and not _knows(driver):
        return unknown(f"driver {driver or 'of this age'} does not tell")
    return healthy("None")


def _knows(driver: str) -> bool:
    major = driver.partition(".")[0]
    return major.isdigit() and int(major) >= 565
