"""Processes of an earlier job are still there.

What it finds: processes on a GPU that will be used; ranks whose launcher is gone; GPU memory that is taken.

Why it happens: a job that was killed half-way, a notebook left open, a container that was not ended.

How it decides: by open GPU devices, by the driver's list of processes, and by ranks (RANK and WORLD_SIZE in the
environment) whose parent is init.

Example: `pid 4711 (python train.py) holds a GPU`

Fix: `whichrank preflight --clean` lists and, when you agree, ends your own.

Limits: another job that shares the host on purpose looks the same; processes of others may be hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH119"
CAUSE = "duplicate-gpu"
CHECK = "leftovers"
PROBE = "processes"
FIX = ("whichrank preflight --clean lists leftovers and ends your own, as soon as you agree.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    orphans = items(values, "orphans")
    if orphans:
        first = orphans[0]
        words = (
            f"{len(orphans)} rank(s) of a dead job still run: pid {first.get('pid')} ({text(first, 'command')[:80]})"
        )
        return unhealthy(len(orphans), words, quote=words)
    # A service may keep a GPU open without working on it; the driver's own list has only those that do.
    busy = {pid for gpu in items(host.values("gpus") or {}, "gpus") for pid in gpu.get("pids") or []}
    holders = [process for process in items(values, "on_gpus") if process.get("pid") in busy or not _daemon(process)]
    if holders:
        first = holders[0]
        words = f"pid {first.get('pid')} ({text(first, 'command')[:80]}) holds a GPU"
        return unhealthy(len(holders), words, severity="warning", quote=words)
    if busy:
        words = f"{len(busy)} process(es) on GPUs that can't be seen from here"
        return unhealthy(len(busy), words, severity="warning", quote=words)
    return healthy("none")


def _daemon(process: Mapping[str, Any]) -> bool:
    names = ("nvidia-persiste", "nv-fabricmanager", "nv-hostengine", "dcgm", "nvidia-smi", "nvsm", "Xorg")
    return any(name in text(process, "command") for name in names)
