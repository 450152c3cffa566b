"""Take up the watch of a job whose watcher has gone."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.run.collect import private_of
from whichrank.run.places import torch_places
from whichrank.run.session import fresh_folder
from whichrank.run.watch import Tell, Watcher


def attach(pid: int, out: Path | None, tell: Tell) -> None:
    """Watch until no process of the job is left; the job is not ours: it is never ended."""
    private = private_of(pid)
    if private is None:
        raise UsageError(
            f"process {pid} belongs to no job that whichrank run started",
            f"To take what can be had from outside: whichrank collect {pid}",
        )
    out = (out or fresh_folder()).absolute()
    out.mkdir(parents=True, exist_ok=True)
    watcher = Watcher(private, out, tell, places=torch_places(processes.environ(pid)), job_pid=pid)
    tell(f"watching the job of process {pid}; results go to {out}")
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    row = processes.stat(pid)
    while row is not None and processes.same(pid, row.start_ticks):
        time.sleep(0.5)
    watcher.stop()
    thread.join(60.0)
    # How the launcher ended is not ours to know; a rank that ended badly says enough.
    watcher.finish(1 if watcher.failed else 0)
    watcher.save("ended")
