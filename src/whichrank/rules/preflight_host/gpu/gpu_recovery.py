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

from whichrank.model.findings import Severity
from whichrank.model.preflight import Check, Launch, healthy, unknown
from whichrank.records.inspection import HostProbes, items
from whichrank.rules.preflight_gpus import Sign, worst

CODE = "PREH103"
CAUSE = "xid-gpu-fault"
CHECK = "gpu-recovery"
PROBE = "gpus"
FIX = ("Do what the driver asks for before the job starts; keep the host out of jobs until then.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    told = False
    signs = []
    for gpu in items(values, "gpus"):
        state: Mapping[str, Any] = gpu.get("values") or {}
        action = str(state.get("recovery_action", ""))
        told = told or bool(action) or "reset_required" in state
        if words := _asked(state, action) or _unreadable(gpu.get("unread")):
            severity: Severity = "warning" if "can't be read" in words else "error"
            signs.append(Sign(gpu.get("index"), words, severity))
    if bad := worst(signs):
        return bad
    driver = next((str(gpu.get("driver")) for gpu in items(values, "gpus")), "")
    # "None" is read as "nothing there": a driver that knows the question and answers so is healthy.
    if not told and not _knows(driver):
        return unknown(f"driver {driver} does not tell" if driver else "no GPU answers")
    return healthy("None")


def _asked(state: Mapping[str, Any], action: str) -> str:
    if action and action.lower() not in ("none", "0", "n/a"):
        return f"the driver asks for: {action}"
    if str(state.get("reset_required", "")).lower() == "yes":
        return "the driver says that it needs a reset"
    if str(state.get("drain_recommended", "")).lower() == "yes":
        return "the driver recommends to drain the host and reset it"
    return ""


def _unreadable(unread: Any) -> str:
    """Words that stand in place of values: a GPU that fails to answer, not one that lacks a sensor."""
    words = {str(key): str(word) for key, word in unread.items()} if isinstance(unread, Mapping) else {}
    gone = next((w for w in words.values() if "reset" in w.lower() or "lost" in w.lower()), "")
    if gone:
        return f'nvidia-smi answers "{gone}"'
    keys = ", ".join(key.replace("_", " ") for key in list(words)[:3])
    return f'{keys} can\'t be read ("{next(iter(words.values()))}")' if words else ""


def _knows(driver: str) -> bool:
    major = driver.partition(".")[0]
    return major.isdigit() and int(major) >= 565
