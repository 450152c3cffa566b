"""The limit for open files is too small for a job of this size.

What it finds: a limit below 65536 for jobs of more than 100 ranks; below 1024 always.

Why it happens: shells and services start with 1024. Each connection of NCCL, Gloo and the store is an open file, and
so is each file of a data set.

How it decides: by the soft limit, which is what a job gets unless it raises it.

Example: `1024 open files for 512 ranks`

Fix: ulimit -n 65536 before the launch; LimitNOFILE of the service; docker run --ulimit nofile=65536.

Limits: a job that opens thousands of files by itself may need more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, number

CODE = "PREH116"
CAUSE = "fd-limit"
CHECK = "open-files"
PROBE = "limits"
FIX = ("ulimit -n 65536 before the launch, or LimitNOFILE=65536 of the service that starts jobs.",)
_MANY_RANKS, _ENOUGH, _LEAST = 100, 65536, 1024
"""Of the facts on hardware probes: 65536 for more than 100 ranks with sockets."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    limit = number(values, "nofile")
    if limit is None:
        return unknown("the limit can't be told")
    world = launch.world_size or launch.hosts
    need = _ENOUGH if world > _MANY_RANKS else _LEAST
    if 0 <= limit < need:
        return unhealthy(int(limit), f"{limit:.0f} open files for {world} ranks; {need} are needed", severity="warning")
    return healthy("unlimited" if limit < 0 else int(limit))
