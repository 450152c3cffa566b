"""The NVSwitch fabric is not ready.

What it finds: a host with NVSwitches whose fabric manager does not run, or GPUs whose fabric state is not
"Completed".

Why it happens: nvidia-fabricmanager was not started, failed, or has another version than the driver. CUDA then fails
with error 802 ("system not yet initialized"), or NVLS is missing and collectives are slow.

How it decides: by the fabric state that each GPU reports where there is one; else by the service. A host without
NVSwitches needs none.

Example: `GPU 0: fabric state In Progress`

Fix: `systemctl restart nvidia-fabricmanager`; its version must equal the driver's.

Limits: in a virtual machine the switches may belong to the host outside; then the GPU's own word decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text
from whichrank.rules.preflight_gpus import Sign, worst

CODE = "PREH107"
CAUSE = "fabric-manager"
CHECK = "fabric-manager"
PROBE = "gpus"
FIX = ("systemctl restart nvidia-fabricmanager (its version must equal the driver's), then look again.",)
_NOT_READY = ("in progress", "not started")
_FINE = ("", "healthy", "n/a", "not supported")


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    states = [(gpu.get("index"), gpu.get("values") or {}) for gpu in items(values, "gpus")]
    told = [(i, str(v.get("fabric_state", "")), str(v.get("fabric_status", "")), str(v.get("fabric_health", "")))
            for i, v in states if v.get("fabric_state")]  # fmt: skip
    signs = []
    for index, state, status, health in told:
        if state.lower() in _NOT_READY:
            signs.append(Sign(index, f"fabric state {state}"))
        elif state.lower() == "completed" and status.lower() not in ("", "success", "n/a"):
            signs.append(Sign(index, f"fabric status {status}"))
        elif health.lower() not in _FINE:
            signs.append(Sign(index, f"fabric health {health}", "warning"))
    if bad := worst(signs):
        return bad
    if any(state.lower() == "completed" for _, state, _, _ in told):
        return healthy("Completed")
    manager = host.values("fabric_manager")
    if manager is None or not manager.get("switches"):
        return None
    if manager.get("running") or text(manager, "service") == "active":
        return healthy("running")
    count = len(manager["switches"])
    return unhealthy("not running", f"{count} NVSwitches on the bus and no fabric manager ({text(manager, 'service')})")
