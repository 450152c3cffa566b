"""Ports of RDMA adapters: state, rate, GIDs, and what their counters count within a second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Absent, Place, content

NAME = "rdma"
LIMIT_S = 8.0
WINDOW_S = 1.0
_MOST_PORTS = 64
_MOST_GIDS = 64
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def measure(place: Place) -> dict[str, Any]:
    """`ports`, each with `counters` and, on a live host, what they grew by in `window_s`."""
    ports = [
        port
        for device in place.entries("/sys/class/infiniband")
        for port in sorted((device / "ports").iterdir() if (device / "ports").is_dir() else [])
    ][:_MOST_PORTS]
    if not ports:
        raise Absent("no RDMA adapter")
    found = [_port(port) for port in ports]
    window = 0.0
    if place.live:
        began = time.monotonic()
        time.sleep(WINDOW_S)
        for port, values in zip(ports, found, strict=True):
            later = _counters(port)
            values["growth"] = {k: later[k] - v for k, v in values["counters"].items() if later.get(k, v) != v}
        window = time.monotonic() - began
    return {"ports": found, "window_s": window}


def _port(port: Path) -> dict[str, Any]:
    device = port.parent.parent
    gids, kinds = _gids(port)
    return {
        "device": device.name, "port": int(port.name) if port.name.isdigit() else 0,
        "state": _after_colon(content(port / "state")), "physical": _after_colon(content(port / "phys_state")),
        "rate": content(port / "rate") or "", "layer": content(port / "link_layer") or "",
        "firmware": content(device / "fw_ver") or "", "board": content(device / "board_id") or "",
        "numa_node": content(device / "device/numa_node"),
        "net": sorted(e.name for e in (device / "device/net").iterdir()) if (device / "device/net").is_dir() else [],
        "gids": gids, "gid_types": kinds, "counters": _counters(port), "growth": {},
        "pfc": _pfc(device),
    }  # fmt: skip


def _after_colon(text: str | None) -> str:
    return (text or "").rpartition(":")[2].strip()


def _gids(port: Path) -> tuple[int, list[str]]:
    """How many GIDs are set, and of which types (`IB/RoCE v1`, `RoCE v2`)."""
    set_, kinds = 0, set()
    folder = port / "gids"
    files = sorted(folder.iterdir(), key=lambda f: int(f.name) if f.name.isdigit() else 0) if folder.is_dir() else []
    for file in files[:_MOST_GIDS]:
        if (content(file) or _NO_GID) != _NO_GID:
            set_ += 1
            kinds.add(content(port / "gid_attrs/types" / file.name) or "")
    return set_, sorted(kinds - {""})


def _counters(port: Path) -> dict[str, int]:
    found = {}
    for folder in ("counters", "hw_counters"):
        for file in sorted((port / folder).iterdir()) if (port / folder).is_dir() else []:
            value = content(file) or ""
            if value.isdigit():
                found[file.name] = int(value)
    return found


def _pfc(device: Path) -> str | None:
    """The priorities with flow control, where a driver tells in sysfs (mlx5: qos/pfc)."""
    return content(device / "device/qos/pfc")
