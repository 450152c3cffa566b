"""A GPU or adapter has fewer PCIe lanes or a lower speed than it could have, or its bus reports errors.

What it finds: width below the maximum; speed below the maximum on a device that does not save power; a GPU or
adapter that differs from its siblings; fatal or non-fatal PCIe errors; many corrected ones.

Why it happens: a riser, slot or cable that is not seated, a slot with fewer lanes, a BIOS setting.

How it decides: lanes are never saved, so fewer of them is a fault. Speed is: a GPU at a low speed while idle is
normal, a network adapter is not. Devices of the same kind and vendor are compared.

Example: `0000:17:00.0 (gpu): 8 of 16 lanes`

Fix: reseat the board or riser, check the slot, look at the BIOS settings.

Limits: virtual machines often show no link at all; then the GPU's own report is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number

CODE = "PREH108"
CAUSE = "pcie-degraded"
CHECK = "pcie"
PROBE = "pci"
FIX = ("Reseat the board or riser and compare with its siblings; look at the slot's BIOS settings.",)
_MANY = 10_000
"""Corrected errors since boot: own threshold; a healthy link has a handful, a marginal one thousands an hour."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    devices = items(values, "devices")
    if not devices:
        return None
    told = 0
    for device in devices:
        width, most = number(device, "width"), number(device, "width_max")
        told += width is not None and most is not None
        where = f"{device.get('address')} ({device.get('kind')})"
        if width and most and width < most and _could_be_wider(device, devices):
            return unhealthy(f"x{width:.0f}", f"{where}: {width:.0f} of {most:.0f} lanes")
        speed, top = number(device, "speed"), number(device, "speed_max")
        if device.get("kind") == "nic" and speed and top and speed < top:
            return unhealthy(speed, f"{where}: {speed:g} of {top:g} GT/s", severity="warning")
        if words := _errors(device):
            return unhealthy(words, f"{where}: {words}", severity="warning" if "corrected" in words else "error")
    reported = [gpu.get("values") or {} for gpu in items(host.values("gpus") or {}, "gpus")]
    for index, state in enumerate(reported):
        lanes, all_lanes = str(state.get("pcie_width", "")), str(state.get("pcie_width_max", ""))
        told += lanes.isdigit() and all_lanes.isdigit()
        if lanes.isdigit() and all_lanes.isdigit() and int(lanes) < int(all_lanes):
            return unhealthy(f"x{lanes}", f"GPU {index}: {lanes} of {all_lanes} lanes", gpus=(index,))
    return healthy("full width") if told else unknown("no device here tells its PCIe link")


def _could_be_wider(device: Mapping[str, Any], devices: list[Mapping[str, Any]]) -> bool:
    """A GPU, or an adapter of whose kind another has more: a x16 card in a x8 slot may be meant so."""
    same = [d for d in devices if d.get("kind") == device.get("kind") and d.get("vendor") == device.get("vendor")]
    wider = any((number(d, "width") or 0) > (number(device, "width") or 0) for d in same)
    return device.get("kind") == "gpu" or wider


def _errors(device: Mapping[str, Any]) -> str:
    counts: Mapping[str, Any] = device.get("aer") or {}
    for kind in ("fatal", "nonfatal"):
        if value := number(counts, kind):
            return f"{value:.0f} {kind} PCIe errors since boot"
    corrected = number(counts, "correctable") or 0
    return f"{corrected:.0f} corrected PCIe errors since boot" if corrected > _MANY else ""
