"""The ranks of this host get less CPU than they need.

What it finds: fewer usable CPUs than ranks; a control group whose quota is below one CPU per rank, or that is
throttled; a load far above the number of CPUs.

Why it happens: a container's CPU limit, a Slurm job without --cpus-per-task, a launcher that pins all ranks to a few
CPUs, leftovers of another job.

How it decides: the CPUs of the affinity mask and the quota of the control group, whichever is tighter, against the
ranks per host; without that number against one.

Example: `8 ranks, 2 CPUs allowed (0-1)`

Fix: ask for more CPUs (--cpus-per-task, resources.limits.cpu), or don't pin.

Limits: a mask that the launcher sets later can't be seen here. Where the files of the control group are hidden, a
quota can't be seen either, and the check says so; `--full` finds it by the time that work takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, number

CODE = "PREH110"
CAUSE = "cpu-starved"
CHECK = "cpu"
PROBE = "cpu"
FIX = ("Ask the scheduler for at least one CPU per rank and its data loaders.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:
    allowed = number(values, "allowed_count")
    if not allowed:
        return unknown("the CPUs of a process can't be told here")
    limits = host.values("limits") or {}
    quota = number(limits, "cpu_quota")
    usable = min(allowed, quota) if quota is not None else allowed
    ranks = launch.ranks_per_host or 1
    why = (
        f"quota of {quota:g} CPUs" if quota is not None and quota < allowed else f"CPUs {values.get('allowed')} allowed"
    )
    if usable < ranks:
        words = f"{ranks} rank{'' if ranks == 1 else 's'} on {usable:g} CPUs ({why})"
        # Ranks that take turns are slow; a part of one CPU is a limit that nobody means for training.
        return unhealthy(round(usable, 2), words, severity="error" if usable < 1 else "warning")
    if limits.get("cpu_hidden"):
        return unknown(f"{why}; whether its control group ({limits['cpu_hidden']}) has a quota can't be seen here")
    return healthy(f"{usable:g} CPUs", why)
