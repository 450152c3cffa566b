"""Take up the watch of a job that runs already: one whose watcher has gone, or one that never had any."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.observers import Audience
from whichrank.run.watch import private
from whichrank.run.watch.collect import private_of
from whichrank.run.watch.find_jobs import the_job
from whichrank.run.watch.job_files import torch_places
from whichrank.run.watch.job_processes import JobProcesses
from whichrank.run.watch.outside import OutsideProcesses, outside_crew
from whichrank.run.watch.results_folder import fresh_folder, open_folder
from whichrank.run.watch.run_record import RunRecord, Tell
from whichrank.run.watch.watcher import Watcher

HINT = "Give the pid of the launcher (torchrun) or of a rank."
GONE = 20
"""Looks without a living rank, after which the job is over though its launcher stays."""


def attach(pid: int | None, out: Path | None, tell: Tell, audience: Audience | None = None) -> None:
    """Watch until no process of the job is left; the job is not ours: it is never ended."""
    if pid is not None and processes.stat(pid) is None:
        raise UsageError(f"there is no process {pid}", HINT)
    job = the_job(pid)
    folder = job.private if job is not None else private_of(pid) if pid is not None else None
    if job is None and folder is None:
        where = f"process {pid} has no ranks below it" if pid is not None else "no job is running here"
        raise UsageError(where, HINT)
    if folder is not None and (watcher := private.watcher_of(folder)) is not None:
        results = private.results_of(folder)
        told = f"; to look on only: whichrank watch {results}" if results is not None else ""
        tell(f"process {watcher} watches this job too{told}")
    root = job.launcher if job is not None else pid or 0
    job_processes = JobProcesses(folder) if folder is not None else outside_crew(root)
    out = open_folder(out.absolute(), tell, goes_on=partial(_same, folder)) if out is not None else fresh_folder()
    own = folder if folder is not None else private.bare()
    private.claim(own, root)
    if private.results_of(own) is None or private.watcher_of(own) is None:
        private.note_results(own, out)
    try:
        _watch(job_processes, root, out, tell, audience or Audience())
    finally:
        if folder is None:
            private.remove(own)
        else:
            private.leave(folder)


def _same(folder: Path | None, state: dict[str, Any]) -> bool:
    """Whether these results are of the very job whose watch is taken up again."""
    return folder is not None and state.get("private") == str(folder)


def _watch(job_processes: JobProcesses, root: int, out: Path, tell: Tell, audience: Audience) -> None:
    row = processes.stat(root)
    rank = next((member.words.pid for member in job_processes.ranks()), root)
    places = torch_places(processes.environ(rank))
    watcher = Watcher(RunRecord(job_processes, out, tell, places=places, job_pid=root, audience=audience))
    watcher.record.whose = f"by{os.getpid()}n"  # another watcher may ask the ranks too, and gets answers of its own
    tell(f"watching the job of process {root}; results go to {out}")
    if isinstance(job_processes, OutsideProcesses):
        for line in limits(job_processes, dumps=bool(places.pipe)):
            tell(line)
    audience.begin(out)
    thread = threading.Thread(target=watcher.run, daemon=True)
    thread.start()
    gone = 0
    # What started the ranks may be a shell, which stays.
    while row is not None and processes.same(root, row.start_ticks) and gone < GONE:
        time.sleep(0.5)
        gone = (
            gone + 1 if job_processes.members and not any(m.alive for m in list(job_processes.members.values())) else 0
        )
    watcher.stop()
    thread.join(60.0)
    # How the launcher ended is not ours to know; a rank that ended badly says enough.
    watcher.finish(1 if watcher.failed else 0)
    watcher.record.save("ended")


def limits(job_processes: OutsideProcesses, *, dumps: bool) -> list[str]:
    """What can't be had of a job that was not started by `run`."""
    lines = ["it was not started by whichrank run: there are no counters of its collectives, so a hang is noticed"]
    lines[0] += " only when no rank works or moves for a minute and a half, and never while one of them computes"
    if not dumps:
        lines.append("its flight recorders can't be asked (TORCH_NCCL_DEBUG_INFO_PIPE_FILE was not set for it)")
    if job_processes.why_blind:
        lines.append(
            f"its stacks can't be read ({job_processes.why_blind}): a rank that spins looks like one that works"
        )
    return lines
