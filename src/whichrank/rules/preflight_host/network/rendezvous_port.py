"""The rendezvous port is taken on this host.

What it finds: a process that listens on the port that the launcher will use.

Why it happens: a store of a dead job, another job on the same host, another service.

How it decides: by the kernel's list of listening sockets.

Example: `port 29500 is taken by pid 4711 (python train.py)`

Fix: end that process, or start with another --master-port or --rdzv-endpoint.

Limits: matters only on the host where the rendezvous will be; on the others it is told as a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH120"
CAUSE = "port-in-use"
CHECK = "rendezvous-port"
PROBE = "processes"
FIX = ("End that process, or start with another --master-port (or another port in --rdzv-endpoint).",)
_SHOWN = 80
"""Characters of its command line."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    if not values.get("port_taken"):
        return healthy(launch.port, "free")
    who = items(values, "listeners")
    command = text(who[0], "command") if who else ""
    shown = command if len(command) <= _SHOWN else f"{command[:_SHOWN]}…"
    by = f"pid {who[0].get('pid')} ({shown})" if who else "a process of another user"
    return unhealthy(
        launch.port, f"port {launch.port} is taken by {by}", severity="warning" if launch.hosts > 1 else "error"
    )
