"""How fast dumps and checkpoints can be written: a file that goes away again."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank.evidence.probes import Missing, Place
from whichrank.evidence.probes.disk import nearest

NAME = "disk_speed"
LIMIT_S = 30.0
LOADS = True
_BYTES, _TRIES, _ENOUGH_S = 16 << 20, 3, 2.0


def measure(place: Place) -> dict[str, Any]:
    """`folders` with MB/s of the best of a few synced writes."""
    if not place.live:
        raise Missing("a recorded tree has no disk to write to")
    folders = [nearest(Path(name)) for name in place.launch.folders or ("/tmp",)]  # noqa: S108
    usable = [folder for folder in folders if os.access(folder, os.W_OK | os.X_OK)]
    if not usable:
        raise Missing("no folder here can be written")
    return {"folders": [{"path": str(folder), "write_mb_s": _best(folder)} for folder in usable]}


def _best(folder: Path) -> float:
    block, best, began = os.urandom(1 << 20), 0.0, time.monotonic()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_TRIES):
            start = time.monotonic()
            for _ in range(_BYTES >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            best = max(best, _BYTES / 1e6 / (time.monotonic() - start))
            if time.monotonic() - began > _ENOUGH_S:
                break
    return round(best, 1)
