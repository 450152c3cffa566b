"""Memory and file systems as a process sees them, in the tables of df and /proc/meminfo: a container has its own."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
_ALWAYS = ("/", "/dev/shm", "/tmp")  # noqa: S108 - looked at, never written
_MEMORY = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Shmem", "CommitLimit", "Committed_AS")


def namespace(pid: int) -> int:
    """The number of a process's mount namespace; 0 where that may not be known."""
    try:
        return (PROC / str(pid) / "ns" / "mnt").stat().st_ino
    except OSError:
        return 0


def tables(pid: int) -> str:
    """Of the file systems those that a job writes to; a network file system that hangs blocks whoever asks."""
    lines = ["Filesystem 1K-blocks Used Available Use% Mounted on"]
    mounts = _mounts(pid)
    seen = set()
    for path in (*_ALWAYS, _folder(pid)):
        point = max((at for at in mounts if _below(path, at)), key=len, default="")
        if point and point not in seen:
            seen.add(point)
            lines += _row(pid, mounts[point], point)
    return "\n".join([*lines, "", *_memory()]) + "\n"


def _row(pid: int, device: str, point: str) -> list[str]:
    try:
        found = os.statvfs(f"{PROC}/{pid}/root{point}")
    except OSError:
        return []
    unit = found.f_frsize / 1024
    used = found.f_blocks - found.f_bfree
    room = used + found.f_bavail
    share = f"{-(-100 * used // room)}%" if room else "-"  # rounded up, as df does
    return [f"{device} {int(found.f_blocks * unit)} {int(used * unit)} {int(found.f_bavail * unit)} {share} {point}"]


def _mounts(pid: int) -> dict[str, str]:
    """Mount point -> device; the last one on a point is the one that is seen."""
    try:
        rows = (PROC / str(pid) / "mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {words[1]: words[0] for row in rows if len(words := row.split(" ")) > 2 and "\\" not in words[1]}


def _folder(pid: int) -> str:
    try:
        return str((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return "/"


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _memory() -> list[str]:
    try:
        rows = (PROC / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [row for row in rows if row.partition(":")[0] in _MEMORY]
