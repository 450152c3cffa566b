"""Processes that an earlier job left behind: on GPUs, on the rendezvous port, without a parent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import processes
from whichrank.evidence.probes import Missing, Place

NAME = "processes"
LIMIT_S = 8.0
_TRAINING = ("RANK", "WORLD_SIZE")
_LISTEN = "0A"
_MOST = 200


def measure(place: Place) -> dict[str, Any]:
    """`orphans` (ranks whose launcher is gone), `on_gpus` (open /dev/nvidia*), `listeners` on the rendezvous port."""
    if not place.live:
        raise Missing("a recorded tree has no processes to ask")
    everyone = processes.everybody()
    own = {os.getpid(), *ancestors(os.getpid(), everyone)}
    # A launcher that started this check listens for its own job.
    ours = {name for pid in own for name in _handles(pid) or ()}
    inodes = listening(place.launch.port) - ours
    orphans, on_gpus, listeners, blind = [], [], [], 0
    for pid, row in everyone.items():
        if pid in own:
            continue
        handles = _handles(pid)
        if handles is None:
            blind += 1
            continue
        if any(name.startswith("/dev/nvidia") and name[11:12].isdigit() for name in handles):
            on_gpus.append(_about(pid))
        if inodes and any(name in inodes for name in handles):
            listeners.append(_about(pid))
        if row.state not in "ZX" and is_orphan(pid, row, everyone):
            orphans.append(_about(pid))
    return {
        "orphans": orphans[:_MOST], "on_gpus": on_gpus[:_MOST], "listeners": listeners[:_MOST],
        "port_taken": bool(inodes), "unseen": blind,
    }  # fmt: skip


def is_orphan(pid: int, row: processes.Stat, everyone: dict[int, processes.Stat]) -> bool:
    """A rank (by its environment) whose parent has gone: init or a subreaper has taken it over."""
    environ = processes.environ(pid)
    if not all(name in environ for name in _TRAINING):
        return False
    parent = everyone.get(row.parent)
    if parent is None or parent.pid == 1:
        return True
    # A launcher marks its ranks and not itself; a parent with the same marks is a rank that started a helper.
    return _is_reaper(parent.pid) and processes.environ(parent.pid).get("RANK") is None


def _is_reaper(pid: int) -> bool:
    return processes.command(pid).split(" ")[0].rpartition("/")[2] in ("systemd", "init", "tini", "dumb-init")


def ancestors(pid: int, everyone: dict[int, processes.Stat]) -> list[int]:
    found = []
    while (row := everyone.get(pid)) is not None and row.parent and row.parent not in found:
        found.append(row.parent)
        pid = row.parent
    return found


def _handles(pid: int) -> set[str] | None:
    found = set()
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(handle.readlink()))
    except PermissionError:
        return None
    except OSError:
        pass
    return found


def listening(port: int) -> set[str]:
    """`socket:[inode]` of whoever listens there in this network namespace."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{words[9]}]")
    return found


def _about(pid: int) -> dict[str, Any]:
    row = processes.stat(pid)
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        uid = -1
    return {
        "pid": pid, "uid": uid, "command": processes.command(pid)[:200],
        "rank": processes.environ(pid).get("RANK"), "start_ticks": row.start_ticks if row else 0,
    }  # fmt: skip
