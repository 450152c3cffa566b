"""There is no room, or no permission, where dumps and checkpoints will go.

What it finds: a folder without write permission, with less than 1 GiB or 1 % free, without inodes; with --full a
write speed below 5 MB/s.

Why it happens: full disks, read-only mounts, a network file system that crawls.

How it decides: by the file system of the folder, or of the nearest one above it that exists.

Example: `/scratch/run7: 212 MiB free`

Fix: free space, or give another folder.

Limits: quotas of network file systems are often not shown in the free space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number, text

CODE = "PREH118"
CAUSE = "disk-full"
CHECK = "disk"
PROBE = "disk"
FIX = ("Free space there, or let dumps and checkpoints go elsewhere.",)
_LEAST, _SHARE, _SLOW = 1 << 30, 0.01, 5.0
"""Own thresholds: one checkpoint of a small model does not fit below; a single hard disk of 2005 writes faster."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    folders = items(values, "folders")
    if not folders:
        return unknown("no folder was looked at")
    for folder in folders:
        path, free, size = text(folder, "path"), number(folder, "free"), number(folder, "size")
        if not folder.get("writable"):
            return unhealthy("not writable", f"{path} can't be written by this user")
        if free is not None and size and (free < _LEAST or free < _SHARE * size):
            return unhealthy(f"{free / 2**20:,.0f} MiB", f"{path}: {free / 2**20:,.0f} MiB free")
        if number(folder, "inodes_free") == 0:
            return unhealthy("no inodes", f"{path}: no inodes left")
    speeds = {}
    for folder in items(host.values("disk_speed") or {}, "folders"):
        speed = number(folder, "write_mb_s")
        if speed is not None and speed < _SLOW:
            return unhealthy(f"{speed} MB/s", f"{text(folder, 'path')} writes {speed} MB/s", severity="warning")
        if speed is not None:
            speeds[text(folder, "path")] = speed
    room = min(number(folder, "free") or 0 for folder in folders)
    slowest = min(speeds, key=lambda path: speeds[path], default="")
    missing = [text(folder, "path") for folder in folders if not folder.get("exists")]
    told = [f"{slowest} writes {speeds[slowest]:.0f} MB/s"] if speeds else []
    told += [f"{', '.join(missing)} is not there yet: the folder above it was looked at"] if missing else []
    return healthy(f"{room / 2**30:,.0f} GiB free", "; ".join(told))
