"""The host, or its control group, is nearly out of memory before the job starts.

What it finds: less than a tenth of the memory available; a control group with less than 2 GiB left per rank.

Why it happens: leftovers of another job, a container limit that was meant for something else.

How it decides: MemAvailable of the kernel, and limit minus usage of the group. Thresholds are ours.

Example: `the control group has 1.2 GiB left of 4 GiB, for 8 ranks`

Fix: end what holds the memory, or raise the limit.

Limits: what the job itself will need is not known here. Where the files of the control group are hidden, the check
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, number

CODE = "PREH117"
CAUSE = "host-out-of-memory"
CHECK = "memory"
PROBE = "memory"
FIX = ("End what holds the memory (whichrank preflight --clean lists leftovers), or raise the limit of the group.",)
_GIB = 1 << 30
_SHARE, _PER_RANK = 0.1, 2 * _GIB


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:
    total, available = number(values, "MemTotal"), number(values, "MemAvailable")
    if not total or available is None:
        return unknown("/proc/meminfo does not tell")
    limits = host.values("limits") or {}
    limit, left = number(limits, "memory_limit"), number(limits, "memory_left")
    ranks = launch.ranks_per_host or 1
    if limit is not None and left is not None and limit < total and left < _PER_RANK * ranks:
        words = f"the control group has {left / _GIB:.1f} GiB left of {limit / _GIB:.1f}, for {ranks} rank(s)"
        return unhealthy(f"{left / _GIB:.1f} GiB", words, severity="warning")
    told = f"{available / _GIB:.1f} GiB of {total / _GIB:.1f}"
    if available < _SHARE * total:
        return unhealthy(told, f"only {told} are available", severity="warning")
    if limits.get("memory_hidden"):
        return unknown(f"{told}; the limit of its control group ({limits['memory_hidden']}) can't be seen here")
    return healthy(told)
