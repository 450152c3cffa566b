"""Room where dumps and checkpoints go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Missing, Place

NAME = "disk"
LIMIT_S = 15.0
"""A network file system that hangs blocks whoever asks; then this child is abandoned."""


def measure(place: Place) -> dict[str, Any]:
    """`folders`: free bytes and inodes, and whether they may be written; `named`: whether somebody asked for them."""
    if not place.live:
        raise Missing("a recorded tree has no disk to ask")
    named = place.launch.folders
    return {"folders": [_folder(Path(name)) for name in named or ("/tmp",)], "named": bool(named)}  # noqa: S108


def _folder(path: Path) -> dict[str, Any]:
    there = nearest(path)
    room = os.statvfs(there)
    found: dict[str, Any] = {
        "path": str(path), "exists": path.exists(), "free": room.f_bavail * room.f_frsize,
        "size": room.f_blocks * room.f_frsize, "inodes_free": room.f_favail if room.f_files else None,
        "writable": os.access(there, os.W_OK | os.X_OK), "type": _type(there),
    }  # fmt: skip
    return found


def nearest(path: Path) -> Path:
    """The folder, or the first one above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _type(path: Path) -> str:
    best, kind = "", ""
    target = str(path.resolve())
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(" ")
        if len(words) > 2 and len(words[1]) > len(best) and (target + "/").startswith(words[1].rstrip("/") + "/"):
            best, kind = words[1], words[2]
    return kind
