"""A port of an RDMA adapter is down, slower than its siblings, or has no address.

What it finds: ports that are not active; a rate below that of the other ports of the same kind; no GID; RoCE
without a v2 GID.

Why it happens: cable, transceiver, switch port; no subnet manager (state INIT); an interface without an address.

How it decides: by /sys/class/infiniband. A port that is down while all others of the host are up is a fault; adapters
without any link may simply not be used, so they are told as a warning.

Example: `mlx5_3/1: DOWN (Polling): cable or far end`

Fix: INIT: start the subnet manager. DOWN and Polling: cable or switch port. Low rate: reseat or replace the cable.

Limits: which ports a job will use is decided by NCCL_IB_HCA and the topology.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH121"
CAUSE = "ib-link-flap"
CHECK = "rdma-ports"
PROBE = "rdma"
FIX = ("Check cable, transceiver and switch port of that adapter; state INIT means that no subnet manager runs.",)
_WHY = {"INIT": "no subnet manager", "DOWN": "cable or far end", "ARMED": "the subnet manager has not finished"}


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    ports = items(values, "ports")
    active = [port for port in ports if text(port, "state") == "ACTIVE"]
    for port in ports:
        state = text(port, "state")
        if state != "ACTIVE":
            words = f"{_name(port)}: {state} ({text(port, 'physical')}): {_WHY.get(state, 'not usable')}"
            return unhealthy(state, words, severity="error" if active else "warning")
    rates = {_name(port): _rate(port) for port in ports}
    usual = Counter(rates.values()).most_common(1)[0][0]
    for port in ports:
        rate = _rate(port)
        same_board = [p for p in ports if text(p, "board") == text(port, "board")]
        if rate < max(_rate(p) for p in same_board):
            return unhealthy(text(port, "rate"), f"{_name(port)}: {text(port, 'rate')}, its siblings {usual:g} Gb/s")
        if port.get("gids") == 0:
            return unhealthy("no GID", f"{_name(port)}: no GID is set: its interface has no address")
        kinds = port.get("gid_types") or []
        if text(port, "layer") == "Ethernet" and kinds and not any("v2" in str(kind) for kind in kinds):
            return unhealthy("no RoCE v2 GID", f"{_name(port)}: only {', '.join(map(str, kinds))}")
    return healthy(f"{len(ports)} active at {usual:g} Gb/s")


def _name(port: Mapping[str, Any]) -> str:
    return f"{port.get('device')}/{port.get('port')}"


def _rate(port: Mapping[str, Any]) -> float:
    word = text(port, "rate").partition(" ")[0]
    try:
        return float(word)
    except ValueError:
        return 0.0
