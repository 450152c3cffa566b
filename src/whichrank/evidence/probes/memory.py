"""Host memory, its pressure, and /dev/shm with the segments that nobody uses any more."""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Place

NAME = "memory"
LIMIT_S = 8.0
SHM = "/dev/shm"  # noqa: S108 - looked at, never written
_OF_JOBS = re.compile(r"^(?:nccl-|torch_|gloo|__KMP_REGISTERED_LIB_|cuda\.shm|sem\.|psm_|vader_segment|ucx_)")
_DF = re.compile(r"^\S+\s+(\d+)\s+\d+\s+(\d+)\s+\d+%\s+/dev/shm$", re.MULTILINE)
_MOST = 4096
YOUNG_S = 5.0
"""A segment is made first and mapped a moment later: a young one is not called stale."""


def measure(place: Place) -> dict[str, Any]:
    """Bytes by the names of /proc/meminfo, `shm_size`, `shm_free`, `stale` segments."""
    found: dict[str, Any] = {}
    for line in (place.read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        word = rest.split()[:1]
        if (
            word
            and word[0].isdigit()
            and name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "HugePages_Free")
        ):
            found[name] = int(word[0]) * 1024
    pressure = re.search(r"^full avg10=([\d.]+)", place.read("/proc/pressure/memory") or "", re.MULTILINE)
    if pressure:
        found["memory_pressure"] = float(pressure[1])
    if place.live:
        shm = os.statvfs(SHM)
        found |= {"shm_size": shm.f_blocks * shm.f_frsize, "shm_free": shm.f_bavail * shm.f_frsize}
        found["stale"] = stale_segments()
    elif recorded := _DF.search(place.read("commands/df") or ""):
        found |= {"shm_size": int(recorded[1]) * 1024, "shm_free": int(recorded[2]) * 1024}
    return found


def stale_segments(folder: Path = Path(SHM), proc: Path = Path("/proc")) -> list[dict[str, Any]]:
    """Segments of training jobs that no process has mapped or open; only told where all processes could be seen."""
    every = sorted(folder.iterdir())[:_MOST] if folder.is_dir() else []
    files = [file for file in every if _OF_JOBS.match(file.name) and not file.is_symlink() and file.is_file()]
    if not files:
        return []
    used, blind = _in_use(proc, str(folder))
    found = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        young = time.time() - max(state.st_mtime, state.st_ctime) < YOUNG_S
        if file.name in used or young or _is_in_use(file):
            continue
        certain = state.st_uid not in blind
        found.append({"name": file.name, "bytes": state.st_size, "uid": state.st_uid, "certain": certain})
    return found


def _in_use(proc: Path, folder: str) -> tuple[set[str], set[int]]:
    """Names that a process has mapped or open, and the users of whom some process could not be looked into."""
    used: set[str] = set()
    blind: set[int] = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            uid = entry.stat().st_uid
            maps = (entry / "maps").read_text(encoding="utf-8", errors="replace")
            used |= {
                line.rpartition(f"{folder}/")[2].removesuffix(" (deleted)")
                for line in maps.splitlines()
                if folder in line
            }
            for handle in (entry / "fd").iterdir():
                target = str(handle.readlink())
                if target.startswith(f"{folder}/"):
                    used.add(target.removeprefix(f"{folder}/"))
        except PermissionError:
            if entry.name != "1":  # init may have more rights than root here; it has no segments of jobs
                blind.add(uid)
        except OSError:
            continue
    return used, blind


def _is_in_use(file: Path) -> bool:
    """Whether the kernel knows of a user, in another container too: it gives a lease only on files that nobody has open
    or mapped, and only to their owner."""
    try:
        one = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.fcntl(one, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(one, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:  # not the owner, or a kernel without leases here
        return False
    finally:
        os.close(one)
    return False
