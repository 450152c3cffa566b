"""Shared-memory segments of dead jobs take room in /dev/shm.

What it finds: files of NCCL, torch or OpenMP in /dev/shm that no process has mapped or open.

Why it happens: jobs that were killed can't clean up.

How it decides: every process's maps and handles are searched; a file younger than five seconds is left out. Only room
that matters is a finding: more than a tenth of /dev/shm.

Example: `14 segments of dead jobs hold 7.3 GiB of /dev/shm`

Fix: `whichrank preflight --clean` lists and, when you agree, removes your own.

Limits: processes of others can't always be looked into; segments of their owners are then only counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number

CODE = "PREH114"
CAUSE = "shm-too-small"
CHECK = "stale-segments"
PROBE = "memory"
FIX = ("whichrank preflight --clean lists and removes your own, as soon as you agree.",)
_SHARE = 0.1


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    if "stale" not in values:
        return unknown("shared memory could not be searched")
    stale = [segment for segment in items(values, "stale") if segment.get("certain")]
    held = sum(int(number(segment, "bytes") or 0) for segment in stale)
    told = f"{len(stale)} segments, {held / (1 << 20):,.0f} MiB"
    size = number(values, "shm_size") or 0
    if size and held > _SHARE * size:
        return unhealthy(told, f"{told} of /dev/shm belong to no live process", severity="warning")
    return healthy(told, "of dead jobs, too little to matter; --clean removes them" if stale else "")
