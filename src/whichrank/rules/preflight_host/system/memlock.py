"""The limit for locked memory is too small for RDMA.

What it finds: a limit below "unlimited" on a host with RDMA adapters.

Why it happens: the default of a login shell or of a service (64 KiB, 8 MiB). Registering buffers then fails:
`ibv_reg_mr` or `ibv_create_cq` with "Cannot allocate memory".

How it decides: RDMA needs it unlimited, or at least a good part of the memory. Without RDMA adapters locked memory is
hardly used, so the limit is told and not judged.

Example: `memlock 65536 bytes, and mlx5_0 is an RDMA adapter`

Fix: `LimitMEMLOCK=infinity` in slurmd.service or containerd's unit, `* - memlock unlimited` in limits.conf, docker run
--ulimit memlock=-1.

Limits: the limit of the process that looks; a job that is started otherwise may have another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number

CODE = "PREH115"
CAUSE = "memlock-ulimit"
CHECK = "memlock"
PROBE = "limits"
FIX = (
    "Set it to unlimited: limits.conf, LimitMEMLOCK=infinity of the service that starts jobs, or --ulimit memlock=-1.",
)
_ENOUGH = 16 << 30
"""Own threshold: NCCL and UCX register buffers of this order on a full node."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    limit = number(values, "memlock")
    if limit is None:
        return unknown("the limit can't be told")
    told = "unlimited" if limit < 0 else f"{limit / 1024:,.0f} KiB"
    adapters = [str(port.get("device")) for port in items(host.values("rdma") or {}, "ports")]
    if 0 <= limit < _ENOUGH and adapters:
        return unhealthy(told, f"memlock is {told}, and {adapters[0]} is an RDMA adapter")
    return healthy(told, "" if adapters else "no RDMA adapter needs it")
