"""A port of an RDMA adapter is down, slower than its siblings, or has no address.

What it finds: ports that are not active; a rate below that of the other ports of the same kind; no GID; RoCE
without a v2 GID.

Why it happens: cable, transceiver, switch port; no subnet manager (state INIT); an interface without an address.

How it decides: by /sys/class/infiniband. A port that is down while most of the same board are up is an error. A port
that was switched off, or the second one of a pair that nobody cabled, may not be used at all: that is a warning.

Example: `mlx5_3/1: DOWN (Polling): cable or far end`

Fix: INIT: start the subnet manager. DOWN and Polling: cable or switch port. Low rate: reseat or replace the cable.

Limits: which ports a job will use is decided by NCCL_IB_HCA and the topology.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whichrank.model.findings import Severity
from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH121"
CAUSE = "ib-link-flap"
CHECK = "rdma-ports"
PROBE = "rdma"
FIX = ("Check cable, transceiver and switch port of that adapter; state INIT means that no subnet manager runs.",)
_WHY = {
    "Disabled": "switched off", "LinkErrorRecovery": "the link keeps retraining: cable or transceiver",
    "INIT": "no subnet manager", "DOWN": "cable or far end", "ARMED": "the subnet manager has not finished",
}  # fmt: skip
_ALIKE = 2
"""So many adapters of the same board must all be up before one that is down is certainly meant to be up."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    ports = [port for port in items(values, "ports") if text(port, "state")]
    if not ports:
        return unknown("no port tells its state")
    down = [port for port in ports if text(port, "state") != "ACTIVE"]
    if down:
        return _down(down, ports)
    rates = {_name(port): _rate(port) for port in ports}
    usual = Counter(rates.values()).most_common(1)[0][0]
    slow, without, old = [], [], []
    for port in ports:
        kinds = [str(kind) for kind in port.get("gid_types") or []]
        if 0 < _rate(port) < max(_rate(p) for p in ports if text(p, "board") == text(port, "board")):
            slow.append(f"{_name(port)}: {text(port, 'rate')[:40]}")
        elif port.get("gids") == 0:
            without.append(_name(port))
        elif text(port, "layer") == "Ethernet" and kinds and not any("v2" in kind for kind in kinds):
            old.append(_name(port))
    if slow:
        return unhealthy(slow[0], f"{_listed(slow)}, their siblings {usual:g} Gb/s", quote=slow[0])
    if without:
        return unhealthy("no GID", f"{_listed(without)}: no GID is set: the interface has no address")
    if old:
        return unhealthy("no RoCE v2 GID", f"{_listed(old)}: RoCE v1 only, no RoCE v2 GID")
    return healthy(f"{len(ports)} active at {usual:g} Gb/s")


def _down(down: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]]) -> Check:
    """An error where the port is certainly meant to be up: a second port that nobody cabled is no fault."""
    words = []
    severity: Severity = "warning"
    for port in down:
        state, physical = text(port, "state"), text(port, "physical")
        words.append(
            f"{_name(port)}: {state} ({physical}): {_WHY.get(physical) or _WHY.get(state, 'not usable')}"[:200]
        )
        alike = [p for p in ports if p not in down and text(p, "board") == text(port, "board")]
        same = [p for p in down if text(p, "board") == text(port, "board")]
        if physical != "Disabled" and len(alike) >= max(_ALIKE, 2 * len(same)):
            severity = "error"
    return unhealthy(text(down[0], "state"), _listed(words), severity=severity, quote=words[0])


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _name(port: Mapping[str, Any]) -> str:
    return f"{port.get('device')}/{port.get('port')}"


def _rate(port: Mapping[str, Any]) -> float:
    """In Gb/s; 0 where it is not told."""
    word = text(port, "rate").partition(" ")[0]
    return float(word) if re.fullmatch(r"\d{1,5}(?:\.\d{1,3})?", word) else 0.0
