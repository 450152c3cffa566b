"""Ports of RDMA adapters: state, rate, MTU, GIDs, flow control, and what their counters count within a second."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Absent, Place, content

NAME = "rdma"
LIMIT_S = 8.0
WINDOW_S = 1.0
_MOST_PORTS = 64
_MOST_GIDS = 64
_MOST_DIGITS = 20
"""Of a counter of 64 bits."""
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_OF_IPV4 = "0000:0000:0000:0000:0000:ffff:"


def measure(place: Place) -> dict[str, Any]:
    """`ports`, each with `counters` and, on a live host, what they grew by in `window_s`."""
    ports = [
        port
        for device in place.entries("/sys/class/infiniband")
        for port in sorted((device / "ports").iterdir() if (device / "ports").is_dir() else [])
    ][:_MOST_PORTS]
    if not ports:
        raise Absent("no RDMA adapter")
    mtus = _active_mtus(place)
    found = [_port(place, port, mtus) for port in ports]
    window = 0.0
    if place.live:
        began = time.monotonic()
        time.sleep(WINDOW_S)
        for port, values in zip(ports, found, strict=True):
            later = _counters(port)
            values["growth"] = {k: later[k] - v for k, v in values["counters"].items() if later.get(k, v) != v}
        window = time.monotonic() - began
    return {"ports": found, "window_s": window}


def _port(place: Place, port: Path, mtus: dict[tuple[str, str], int]) -> dict[str, Any]:
    device = port.parent.parent
    gids, kinds, best = _gids(port)
    net = sorted(e.name for e in (device / "device/net").iterdir()) if (device / "device/net").is_dir() else []
    return {
        "device": device.name, "port": int(port.name) if port.name.isdigit() else 0,
        "state": _after_colon(content(port / "state")), "physical": _after_colon(content(port / "phys_state")),
        "rate": content(port / "rate") or "", "layer": content(port / "link_layer") or "",
        "firmware": content(device / "fw_ver") or "", "board": content(device / "board_id") or "",
        "numa_node": content(device / "device/numa_node"),
        "net": net, "gids": gids, "gid_types": kinds, "roce_gid": best, "counters": _counters(port), "growth": {},
        "mtu": mtus.get((device.name, port.name)), "pfc": _pfc(place, net), "ecn": _ecn(place, net),
    }  # fmt: skip


def _after_colon(text: str | None) -> str:
    return (text or "").rpartition(":")[2].strip()


def _gids(port: Path) -> tuple[int | None, list[str], int | None]:
    """How many GIDs are set, of which types (`IB/RoCE v1`, `RoCE v2`), and the index of the one to use for RoCE."""
    set_, kinds = 0, set()
    best: tuple[bool, int] | None = None
    folder = port / "gids"
    if not folder.is_dir():
        return None, [], None  # not recorded: that is not the same as none
    files = sorted(folder.iterdir(), key=lambda f: int(f.name) if f.name.isdigit() else 0)
    for file in files[:_MOST_GIDS]:
        gid = content(file) or _NO_GID
        if gid == _NO_GID:
            continue
        set_ += 1
        kind = content(port / "gid_attrs/types" / file.name) or ""
        kinds.add(kind)
        # NCCL's choice too: RoCE v2 with an IPv4 address before one with a link-local address.
        if "v2" in kind and file.name.isdigit():
            choice = (not gid.startswith(_OF_IPV4), int(file.name))
            best = choice if best is None else min(best, choice)
    return set_, sorted(kinds - {""}), best[1] if best else None


def _counters(port: Path) -> dict[str, int]:
    found = {}
    for folder in ("counters", "hw_counters"):
        for file in sorted((port / folder).iterdir()) if (port / folder).is_dir() else []:
            value = content(file) or ""
            if value.isdigit() and len(value) <= _MOST_DIGITS:
                found[file.name] = int(value)
    return found


def _active_mtus(place: Place) -> dict[tuple[str, str], int]:
    """(Device, port) -> MTU: sysfs does not have it, ibv_devinfo prints it."""
    said, _ = place.output(["ibv_devinfo"], 3.0)
    found: dict[tuple[str, str], int] = {}
    device = port = ""
    for line in said.decode("utf-8", "replace").splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "hca_id":
            device = value
        elif name == "port" and value.isdigit():
            port = value
        elif name == "active_mtu" and (match := re.match(r"(\d{3,4})\b", value)):
            found[device, port] = int(match[1])
    return found


def _pfc(place: Place, nets: list[str]) -> list[int] | None:
    """The priorities with flow control by `dcb`; None where nobody tells."""
    for net in nets:
        said, why = place.output(["dcb", "-j", "pfc", "show", "dev", net], 2.0)
        if why or not said:
            continue
        try:
            document = json.loads(said)
            document = document[0] if isinstance(document, list) else document
            enabled = document["prio_pfc"]
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        if isinstance(enabled, list):
            return [n for n, on in enumerate(enabled[:8]) if on is True or str(on).endswith("on")]
    return None


def _ecn(place: Place, nets: list[str]) -> list[int] | None:
    """The priorities at which both ends of congestion control are on (sysfs of MLNX_OFED); None where nobody tells."""
    for net in nets:
        top = f"/sys/class/net/{net}/ecn"
        sides = [
            {f.name: place.read(f"{top}/{side}/enable/{f.name}") for f in place.entries(f"{top}/{side}/enable")}
            for side in ("roce_np", "roce_rp")
        ]
        if all(sides):
            return [n for n in range(8) if all(side.get(str(n)) == "1" for side in sides)]
    return None
