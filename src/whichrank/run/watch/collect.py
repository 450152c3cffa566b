"""A bundle now: of a job that `run` started, or of any other with what can be had from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.model.last_words import JOINED, Words
from whichrank.run.watch.capture import capture
from whichrank.run.watch.find_jobs import the_job
from whichrank.run.watch.job_files import torch_places
from whichrank.run.watch.job_processes import TICKS_PER_S, JobProcesses, Member
from whichrank.run.watch.results_folder import put_bundle_aside
from whichrank.worker.startup import FOLDER

UNWATCHED = "the job was not started by whichrank run: there is nobody inside to ask"


def collect(pid: int | None, out: Path, *, gdb: bool = False) -> Bundle:
    """Take everything that can be had of the job that this process belongs to; with gdb its ranks pause meanwhile."""
    root = pid if pid is not None else the_only_job()
    if processes.stat(root) is None:
        raise UsageError(f"there is no process {root}", "Give the pid of the launcher (torchrun) or of a rank.")
    job_processes = crew_of(root)
    ranks = job_processes.look() if job_processes.folder.is_dir() else job_processes.ranks()
    if not ranks:
        raise UsageError(f"process {root} has no ranks below it", "Give the pid of the launcher, or of a rank.")
    put_bundle_aside(out.absolute())
    bundle = Bundle(out)
    places = torch_places(processes.environ(ranks[0].words.pid))
    # What somebody else has collected before is another answer.
    capture(job_processes, bundle, f"collect{os.getpid()}", places=places, pauses=gdb, gdb=gdb)
    if not job_processes.folder.is_dir():
        bundle.lacks("last words", UNWATCHED)
    bundle.close({"world_size": max(m.words.world for m in ranks), "ranks_seen": [m.rank for m in ranks]})
    job_processes.close()
    return bundle


def the_only_job(name: str = "") -> int:
    """A process of the job that is meant: the one of this name, else the one that is watched, else the only one."""
    folders: dict[str, int] = {}
    for pid in sorted(processes.everybody()) if not name else ():
        folder = processes.environ(pid).get(FOLDER)
        if folder and Path(folder).is_dir():
            folders.setdefault(folder, pid)
    if len(folders) == 1:
        return next(iter(folders.values()))
    if folders:
        pids = ", ".join(str(pid) for pid in folders.values())
        raise UsageError(f"{len(folders)} watched jobs are running here", f"Give the pid of one of them: {pids}.")
    job = the_job(None, name)
    if job is None:
        what = f"no job {name!r} runs here" if name else "no distributed job runs here"
        raise UsageError(what, "Give the pid of the job's launcher or of a rank, or --hosts, where it runs elsewhere.")
    return job.launcher


def private_of(root: int) -> Path | None:
    """The private folder of the job that a process belongs to, if `run` started it."""
    everyone = processes.everybody()
    found: list[Path] = []
    for pid in (root, *processes.below(root, everyone)):
        folder = Path(processes.environ(pid).get(FOLDER) or "/nonexistent")
        if folder not in found and folder.is_dir() and folder.stat().st_uid == os.geteuid():
            found.append(folder)
    if len(found) > 1:
        raise UsageError(f"{len(found)} watched jobs run below process {root}", "Give the pid of one job's launcher.")
    return found[0] if found else None


def crew_of(root: int) -> JobProcesses:
    """The processes of a job: by the words that they leave, else by their environment."""
    folder = private_of(root)
    if folder is not None:
        return JobProcesses(folder)
    everyone = processes.everybody()
    return unwatched_processes((root, *processes.below(root, everyone)), everyone)


def unwatched_processes(pids: Iterable[int], everyone: Mapping[int, processes.Stat]) -> JobProcesses:
    """Those of these processes that are ranks, by their environment."""
    job_processes = JobProcesses(Path("/nonexistent"))
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for pid in pids:
        variables = processes.environ(pid)
        rank = _number(variables.get("RANK"))
        above = _number(processes.environ(everyone[pid].parent).get("RANK")) if pid in everyone else -1
        if rank < 0 or above == rank:
            continue
        row = everyone[pid]
        words = Words(
            pid=pid, parent=row.parent, start_ticks=row.start_ticks, rank=rank,
            local_rank=_number(variables.get("LOCAL_RANK")), world=_number(variables.get("WORLD_SIZE")), phase=JOINED,
            started_ns=booted_ns + row.start_ticks * 1_000_000_000 // TICKS_PER_S,
        )  # fmt: skip
        job_processes.members[str(pid)] = Member(words, str(pid), state=row.state)
    return job_processes


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() and len(text) < 8 else -1
