"""RoCE without flow control: neither PFC nor ECN is on at an adapter's port.

What it finds: Ethernet ports of RDMA adapters at which no priority has PFC and none has ECN-based congestion control.

Why it happens: adapters come with both off; a reinstalled host lost its set-up; only the switches were configured.

How it decides: PFC by `dcb -j pfc show`, ECN by /sys/class/net/DEV/ecn (MLNX_OFED). Both must be readable and off.
One of them is enough: networks are run with either.

Example: `mlx5_2/1 (ens5np0): PFC and ECN are off at every priority`

Fix: set both up as the network's design says, for example PFC and ECN on priority 3 (mlnx_qos, dcb).

Limits: upstream drivers don't tell ECN in sysfs, then the answer is "could not tell". Whether the switches agree is not
visible from a host; hosts are compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH129"
CAUSE = "packet-loss"
CHECK = "roce-flow-control"
PROBE = "rdma"
FIX = ("Set PFC and ECN up for the priority of RoCE on adapter and switch (mlnx_qos, dcb pfc set).",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    ports = [p for p in items(values, "ports") if text(p, "layer") == "Ethernet" and text(p, "state") == "ACTIVE"]
    if not ports:
        return None
    silent = [port for port in ports if port.get("pfc") is None and port.get("ecn") is None]
    for port in ports:
        name = f"{port.get('device')}/{port.get('port')} ({', '.join(map(str, port.get('net') or []))})"
        if port.get("pfc") == [] and port.get("ecn") == []:
            words = f"{name}: PFC and ECN are off at every priority"
            return unhealthy("off", words, severity="warning", quote=words)
    if silent or all(not port.get("pfc") and not port.get("ecn") for port in ports):
        return unknown("the driver does not tell PFC and ECN")
    priorities = sorted({n for port in ports for key in ("pfc", "ecn") for n in port.get(key) or []})
    return healthy("priority " + ", ".join(map(str, priorities)))
