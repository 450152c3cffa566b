"""The host as it was when the job started: counters say something by their rise only."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from whichrank.evidence.collectors import fabric, gpus
from whichrank.model.files import replace_file
from whichrank.run.watch.capture.aside import Aside
from whichrank.run.watch.job_processes import Member

FABRIC, GPUS = "start.fabric", "start.gpus"


def remember(folder: Path) -> Aside[None]:
    """Write it into the private folder, beside the watch: whoever captures later finds it there."""
    return Aside(lambda: _remember(folder))


def _remember(folder: Path) -> None:
    for name, data in ((FABRIC, fabric.ports().encode()), (GPUS, gpus.table()[0])):
        if data:
            replace_file(folder / name, data, mode=0o600)


def started_s(members: Sequence[Member]) -> float:
    """When the first process of the job started, in seconds since 1970."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = [m.words.start_ticks for m in members if m.words.start_ticks]
    return booted + min(ticks) / os.sysconf("SC_CLK_TCK") if ticks else time.time()
