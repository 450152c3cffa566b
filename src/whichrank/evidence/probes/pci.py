"""GPUs and network adapters on the PCIe bus: lanes, speed, errors, NUMA node, and what redirects their traffic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Missing, Place, content

NAME = "pci"
LIMIT_S = 10.0
_KINDS = {"0x0302": "gpu", "0x0300": "gpu", "0x0207": "nic", "0x0200": "nic", "0x0604": "bridge", "0x0680": "switch"}
_GPU_VENDORS = ("0x10de", "0x1002")
_ADDRESS = re.compile(r"^[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[\da-f]$")
# PCI Express Base Specification: extended capability 0x000d is ACS; bits of its control register.
_ACS, _REDIRECTS = 0x000D, 0x0004 | 0x0008 | 0x0010
_EXTENDED, _CONFIG = 0x100, 4096


def measure(place: Place) -> dict[str, Any]:
    """`devices`, and whether the IOMMU translates."""
    devices = [found for entry in place.entries("/sys/bus/pci/devices") if (found := _device(entry))]
    if not devices:
        raise Missing("no PCI bus in /sys")
    groups = len(place.entries("/sys/kernel/iommu_groups"))
    loaded = place.read("/proc/modules") or ""
    cmdline = place.read("/proc/cmdline") or ""
    kinds = [place.read(f"/sys/kernel/iommu_groups/{n.name}/type") for n in place.entries("/sys/kernel/iommu_groups")]
    return {
        "devices": [d for d in devices if d["kind"] in ("gpu", "nic")],
        "bridges": [d for d in devices if d["kind"] == "bridge" and d["acs"] is not None],
        "acs_readable": any(d["acs"] is not None for d in devices),
        "iommu_groups": groups,
        "iommu_translates": groups > 0 and "iommu=pt" not in cmdline and any(k in ("DMA", "DMA-FQ") for k in kinds),
        "virtual": "hypervisor" in (place.read("/proc/cpuinfo") or ""),
        "modules": [m for m in ("nvidia_peermem", "nv_peer_mem", "gdrdrv") if f"{m} " in loaded],
        "kernel": (place.read("/proc/sys/kernel/osrelease") or ""),
        "open_module": "Open Kernel Module" in (place.read("/proc/driver/nvidia/version") or ""),
    }  # fmt: skip


def _device(folder: Path) -> dict[str, Any] | None:
    if not _ADDRESS.match(folder.name):
        return None
    kind = _KINDS.get((content(folder / "class") or "")[:6])
    vendor = content(folder / "vendor") or ""
    if kind is None or (kind == "gpu" and vendor not in _GPU_VENDORS):
        return None
    return {
        "address": folder.name, "kind": kind, "vendor": vendor,
        "width": _lanes(folder, "current_link_width"), "width_max": _lanes(folder, "max_link_width"),
        "speed": _speed(folder, "current_link_speed"), "speed_max": _speed(folder, "max_link_speed"),
        "numa_node": _number(folder / "numa_node"),
        "aer": {kind: _total(folder / f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")},
        "acs": _acs(folder / "config") if kind == "bridge" else None,
        "path": _path(folder), "root": _root(folder),
        "net": sorted(entry.name for entry in (folder / "net").iterdir()) if (folder / "net").is_dir() else [],
        "rdma": sorted(e.name for e in (folder / "infiniband").iterdir()) if (folder / "infiniband").is_dir() else [],
    }  # fmt: skip


def _path(folder: Path) -> list[str]:
    """The bridges above a device, the root first; sysfs has them in the place that the link leads to."""
    return [part for part in folder.resolve().parts if _ADDRESS.match(part)][:-1]


def _root(folder: Path) -> str:
    """The host bridge: `pci0000:17`."""
    return next((part for part in folder.resolve().parts if re.fullmatch(r"pci[\da-f]{4,8}:[\da-f]{2}", part)), "")


def _lanes(folder: Path, name: str) -> int | None:
    lanes = _number(folder / name)
    return lanes if lanes and lanes < 64 else None  # 63 and 255 mean "unknown"; virtual functions say 0


def _speed(folder: Path, name: str) -> float | None:
    word = (content(folder / name) or "").partition(" ")[0]
    try:
        return float(word)
    except ValueError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(content(file) or "")
    except ValueError:
        return None


def _total(file: Path) -> int | None:
    found = re.search(r"^TOTAL_ERR_\w+ (\d{1,18})$", content(file) or "", re.MULTILINE)
    return int(found[1]) if found else None


def _acs(file: Path) -> int | None:
    """The control register of ACS; None where there is none, or only root may read that far."""
    try:
        with file.open("rb") as stream:
            config = stream.read(_CONFIG)
    except OSError:
        return None
    at = _EXTENDED
    for _ in range(64):
        if at + 8 > len(config) or at < _EXTENDED:
            return None
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little") & _REDIRECTS
        at = header >> 20
    return None
