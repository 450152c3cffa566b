"""A job whose end is announced: ranks that know the signal may save, then the job is ended and queued again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from whichrank.evidence.collectors import processes
from whichrank.run.resume import requeue, slurm
from whichrank.run.resume.restarts import Restarts
from whichrank.run.resume.scheduler import Scheduler
from whichrank.run.watch.launch import Job
from whichrank.run.watch.watcher import Watcher

SAVING_S = 60.0
"""For ranks that act upon the signal; less where the announced end is nearer."""
SPARE_S = 30.0
"""Before the announced end: for the end of the job itself, and for the request to queue it again."""

ENDED_S = 30.0
"""Slurm's signal comes at once after a request to queue a job again."""


@dataclass(slots=True)
class Ear:
    """Hears every signal that this process gets, and says whether the job is to get it too."""

    job: Job
    watcher: Watcher
    end: Callable[[Job], None]
    tell: Callable[[str], None]

    def __call__(self, number: int, sender: int) -> bool:
        scheduler = self.watcher.record.scheduler
        before = scheduler.leaving
        passed = scheduler.hear(number, sender)
        if scheduler.leaving and not before:
            self.watcher.record.leave()
            if scheduler.announced:
                threading.Thread(target=self.wind_up, args=(number,), name="wind-up", daemon=True).start()
        return passed

    def wind_up(self, number: int) -> None:
        """Let ranks that catch the signal act upon it; then end the job."""
        ranks = [member.words for member in self.watcher.record.job_processes.ranks()]
        told = [words for words in ranks if processes.same(words.pid, words.start_ticks) and catches(words.pid, number)]
        self.tell(f"the end of this job is announced: {f'{len(told)} ranks are told, and ' if told else ''}it is ended")
        for words in told:
            with suppress(ProcessLookupError):
                os.kill(words.pid, number)
        deadline = time.monotonic() + (self._patience_s() if told else 0.0)
        while self.job.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        self.end(self.job)

    def _patience_s(self) -> float:
        limit = self.watcher.record.scheduler.limit_ns
        left = (limit - time.time_ns()) / 1e9 - SPARE_S if limit is not None else SAVING_S
        return max(0.0, min(SAVING_S, left))


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    for line in processes.status(pid).splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            with suppress(ValueError):
                return bool(int(value, 16) >> (number - 1) & 1)
    return False


def queue_again(scheduler: Scheduler, restarts: Restarts | None, job: Job, code: int) -> None:
    """Ask for one more start where that is wanted and leads anywhere; what is left of the job ends with it."""
    if restarts is None or not restarts.plan.requeue:
        return
    known, tell = scheduler.slurm, restarts.tell
    with suppress(OSError):
        requeue.save(restarts.out, restarts.attempts)
    if known is None or not known.first:
        return
    if not scheduler.announced and (code == 0 or job.asked_to_end):
        return
    if why := requeue.reason_not(restarts.plan, restarts.attempts):
        tell(f"the job is not queued again: {why}")
        return
    newest = restarts.current.newest
    tell(f"asking Slurm to queue job {known.job} again" + (f"; it will go on from {newest}" if newest else ""))
    if why := slurm.queue_again(known.job):
        tell(f"Slurm does not queue the job again: {why}")
        return
    # Slurm ends what is left of this start; a script that ends by itself meanwhile may count as the end of the job.
    time.sleep(ENDED_S)
