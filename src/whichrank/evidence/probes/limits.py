"""Limits of a process that is started here, and of the control group it would live in."""

from __future__ import annotations

import re
from typing import Any

from whichrank.evidence.probes import Place

NAME = "limits"
LIMIT_S = 10.0
_ROWS = {"Max locked memory": "memlock", "Max open files": "nofile", "Max processes": "nproc"}
_SHOWN = {
    "cpu": ("cpu.max", "cpu.cfs_quota_us", "cpu.stat"),
    "memory": ("memory.max", "memory.limit_in_bytes", "memory.stat"),
}
"""Files of which one is there wherever a group can be looked into."""
_NO_LIMIT = 1 << 60
"""Control groups of version 1 write "no limit" as a number near 2^63."""


def measure(place: Place) -> dict[str, Any]:
    """Soft and hard limits (-1: unlimited), the group's memory, CPUs and how often it was throttled."""
    found: dict[str, Any] = {}
    for line in (place.read("/proc/self/limits") or "").splitlines():
        for words, key in _ROWS.items():
            if line.startswith(words):
                soft, hard = line[len(words) :].split()[:2]
                found[key], found[f"{key}_hard"] = _limit(soft), _limit(hard)
    return {**found, **_group(place)}


def _limit(word: str) -> int:
    return -1 if word == "unlimited" else int(word)


def _group(place: Place) -> dict[str, Any]:
    """By /proc/self/cgroup; inside a container its own group is the root of what it sees."""
    paths = {}
    for line in (place.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for controller in controllers.split(","):
            paths[controller] = path
    found: dict[str, Any] = {}
    for folder in _folders(paths, "memory"):
        limit = place.read(f"{folder}/memory.max") or place.read(f"{folder}/memory.limit_in_bytes")
        used = place.read(f"{folder}/memory.current") or place.read(f"{folder}/memory.usage_in_bytes")
        if limit and limit.isdigit() and int(limit) < _NO_LIMIT and (used or "").isdigit():
            left = int(limit) - int(used or 0)
            if left < found.get("memory_left", left + 1):
                found |= {"memory_limit": int(limit), "memory_left": left}
    for folder in _folders(paths, "cpu"):
        cpus = _quota(place, folder)
        if cpus is not None and cpus < found.get("cpu_quota", cpus + 1):
            found["cpu_quota"] = round(cpus, 3)
        throttled = re.search(r"^nr_throttled (\d+)", place.read(f"{folder}/cpu.stat") or "", re.MULTILINE)
        if throttled:
            found["throttled"] = max(int(throttled[1]), found.get("throttled", 0))
    for folder in _folders(paths, "pids"):
        most = place.read(f"{folder}/pids.max") or ""
        if most.isdigit():
            found["pids_max"] = min(int(most), found.get("pids_max", int(most)))
    return found | _hidden(place, paths)


def _hidden(place: Place, paths: dict[str, str]) -> dict[str, str]:
    """Groups that limit this process and can't be looked into: `cpu_hidden`, `memory_hidden` with the group's name."""
    found = {}
    for controller, files in _SHOWN.items():
        path, folders = paths.get(controller, paths.get("", "/")), _folders(paths, controller)
        if path.strip("/") and not any(place.read(f"{folder}/{file}") for folder in folders for file in files):
            found[f"{controller}_hidden"] = path
    return found


def _folders(paths: dict[str, str], controller: str) -> list[str]:
    """The group and those above it, in version 2 and version 1: the tightest limit counts."""
    found = []
    for top, path in (("/sys/fs/cgroup", paths.get("")), (f"/sys/fs/cgroup/{controller}", paths.get(controller))):
        if path is None:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        found += ["/".join([top, *parts[:n]]) for n in range(len(parts), -1, -1)]
    return found


def _quota(place: Place, folder: str) -> float | None:
    """CPUs' worth of time; None without a limit."""
    words = (place.read(f"{folder}/cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = place.read(f"{folder}/cpu.cfs_quota_us"), place.read(f"{folder}/cpu.cfs_period_us")
    if quota and period and quota.isdigit() and int(period):
        return int(quota) / int(period)
    return None
