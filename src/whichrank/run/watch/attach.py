"""Take up the watch of a job that runs already: one whose watcher has gone, or one that never had any."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.listeners import Audience
from whichrank.run.watch import private
from whichrank.run.watch.collect import private_of
from whichrank.run.watch.keeper import Tell
from whichrank.run.watch.outside import OutsideCrew, job_of, outside_crew
from whichrank.run.watch.places import torch_places
from whichrank.run.watch.processes import Crew
from whichrank.run.watch.session import fresh_folder
from whichrank.run.watch.watcher import Watcher


def attach(pid: int, out: Path | None, tell: Tell, audience: Audience | None = None) -> None:
    """Watch until no process of the job is left; the job is not ours: it is never ended."""
    if processes.stat(pid) is None:
        raise UsageError(f"there is no process {pid}", "Give the pid of the launcher (torchrun) or of a rank.")
    folder = private_of(pid)
    root = pid if folder is not None else job_of(pid)
    row = processes.stat(root)
    crew = Crew(folder) if folder is not None else outside_crew(root)
    if folder is None and not crew.ranks():
        raise UsageError(f"process {root} has no ranks below it", "Give the pid of the launcher, or of a rank.")
    out = (out or fresh_folder()).absolute()
    out.mkdir(parents=True, exist_ok=True)
    if folder is not None:
        private.claim(folder, root)
    rank = next((member.words.pid for member in crew.ranks()), root)
    places = torch_places(processes.environ(rank))
    watcher = Watcher(crew, out, tell, places=places, job_pid=root, audience=audience or Audience())
    tell(f"watching the job of process {root}; results go to {out}")
    if isinstance(crew, OutsideCrew):
        for line in limits(crew, dumps=bool(places.pipe)):
            tell(line)
    watcher.audience.begin(out)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    while row is not None and processes.same(root, row.start_ticks):
        time.sleep(0.5)
    watcher.stop()
    thread.join(60.0)
    # How the launcher ended is not ours to know; a rank that ended badly says enough.
    watcher.finish(1 if watcher.failed else 0)
    watcher.save("ended")
    if folder is not None and not private.in_use(folder, besides_us=True):
        private.remove(folder)


def limits(crew: OutsideCrew, *, dumps: bool) -> list[str]:
    """What can't be had of a job that was not started by `run`."""
    lines = ["it was not started by whichrank run: there are no counters of its collectives, so a hang is noticed"]
    lines[0] += " only when no rank works or moves for a minute and a half, and never while one of them computes"
    if not dumps:
        lines.append("its flight recorders can't be asked (TORCH_NCCL_DEBUG_INFO_PIPE_FILE was not set for it)")
    if crew.why_blind:
        lines.append(f"its stacks can't be read ({crew.why_blind}): a rank that spins looks like one that works")
    return lines
