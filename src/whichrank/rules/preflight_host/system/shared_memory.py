"""Shared memory (/dev/shm) is too small for the ranks of this host.

What it finds: a /dev/shm of 64 MiB (Docker's default) or less, or with little room left.

Why it happens: containers get 64 MiB unless told otherwise; earlier jobs leave segments behind. NCCL and data loaders
fail with "No space left on device" or die by SIGBUS.

How it decides: free space against 64 MiB for each rank that will be started here, and against Docker's default.
Own threshold: NCCL needs tens of MB per pair of local ranks, data loaders more.

Example: `64 MiB, Docker's default`

Fix: docker run --shm-size=8g (or --ipc=host); in Kubernetes mount an emptyDir with medium: Memory at /dev/shm.

Limits: what data loaders need depends on the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, number

CODE = "PREH113"
CAUSE = "shm-too-small"
CHECK = "shared-memory"
PROBE = "memory"
FIX = ("Give the container more: docker run --shm-size=8g, or in Kubernetes an emptyDir with medium: Memory.",)
_MIB = 1 << 20
_PER_RANK = 64 * _MIB


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    size, free = number(values, "shm_size"), number(values, "shm_free")
    if size is None or free is None:
        return unknown("the size of /dev/shm can't be told")
    told = f"{free / _MIB:,.0f} MiB free of {size / _MIB:,.0f}"
    need = max(_PER_RANK * (launch.ranks_per_host or 1), _PER_RANK + 1)
    if free < need:
        default = ", Docker's default" if size == _PER_RANK else ""
        ranks = f" for {launch.ranks_per_host} ranks" if launch.ranks_per_host else ""
        words = f"shared memory (/dev/shm) has {told}{default}: too little{ranks}"
        return unhealthy(told, words)
    return healthy(told)
