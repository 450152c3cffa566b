"""NVSwitch and its fabric manager: whether there are switches, and whether the service that sets them up runs."""

from __future__ import annotations

from typing import Any

from whichrank.evidence.collectors import processes
from whichrank.evidence.probes import Absent, Place

NAME = "fabric_manager"
LIMIT_S = 10.0
_NVIDIA, _SWITCH_CLASS = "0x10de", "0x0680"


def measure(place: Place) -> dict[str, Any]:
    """`switches` on the bus, `service` as systemd has it, `running` by the process list."""
    switches = [
        device.name
        for device in place.entries("/sys/bus/pci/devices")
        if place.read(f"/sys/bus/pci/devices/{device.name}/vendor") == _NVIDIA
        and (place.read(f"/sys/bus/pci/devices/{device.name}/class") or "").startswith(_SWITCH_CLASS)
    ]
    said, why = place.output(["systemctl", "is-active", "nvidia-fabricmanager"], 3.0)
    running = None
    if place.live:
        running = any("nv-fabricmanager" in processes.command(pid)[:200] for pid in processes.everybody())
    if not switches and not running and not said.strip():
        raise Absent("no NVSwitch")
    return {"switches": switches, "service": said.decode("ascii", "replace").strip() or why, "running": running}
