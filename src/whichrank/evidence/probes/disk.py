"""Room where dumps and checkpoints go, and how fast it can be written."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Missing, Place

NAME = "disk"
LIMIT_S = 15.0
"""A network file system that hangs blocks whoever asks; then this child is abandoned."""
_BYTES = 64 << 20
_WRITE_S = 4.0


def measure(place: Place) -> dict[str, Any]:
    """`folders`: free bytes and inodes, whether they may be written, and with `load` the speed of a synced write."""
    if not place.live:
        raise Missing("a recorded tree has no disk to ask")
    return {"folders": [_folder(Path(name), place.launch.load) for name in place.launch.folders or ("/tmp",)]}  # noqa: S108


def _folder(path: Path, load: bool) -> dict[str, Any]:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    room = os.statvfs(there)
    found: dict[str, Any] = {
        "path": str(path), "exists": path.exists(), "free": room.f_bavail * room.f_frsize,
        "size": room.f_blocks * room.f_frsize, "inodes_free": room.f_favail if room.f_files else None,
        "writable": os.access(there, os.W_OK | os.X_OK), "type": _type(there),
    }  # fmt: skip
    if load and found["writable"] and found["free"] > 4 * _BYTES:
        found["write_mb_s"] = _write_speed(there)
    return found


def _type(path: Path) -> str:
    best, kind = "", ""
    target = str(path.resolve())
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(" ")
        if len(words) > 2 and len(words[1]) > len(best) and (target + "/").startswith(words[1].rstrip("/") + "/"):
            best, kind = words[1], words[2]
    return kind


def _write_speed(folder: Path) -> float:
    """MB/s, of a file that goes away again."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        began, written = time.monotonic(), 0
        while written < _BYTES and time.monotonic() - began < _WRITE_S:
            written += file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return round(written / 1e6 / (time.monotonic() - began), 1)
