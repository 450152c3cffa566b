"""`whichrank run` as one call: private folder, settings, the job, its watcher, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.evidence.collectors import processes, ras
from whichrank.model.errors import UsageError
from whichrank.model.files import private_folder
from whichrank.model.last_words import BELOW
from whichrank.model.settings import Purpose
from whichrank.run.monitoring.observers import Audience
from whichrank.run.resume import escalation, requeue
from whichrank.run.resume.decision import Attempt, Plan, Trap, trap
from whichrank.run.resume.graceful_end import Ear, queue_again
from whichrank.run.resume.restarts import Restarts
from whichrank.run.resume.scheduler import Scheduler
from whichrank.run.resume.slurm import Slurm
from whichrank.run.watch import private
from whichrank.run.watch.conditions import Conditions
from whichrank.run.watch.job_files import Output, torch_places
from whichrank.run.watch.job_processes import JobProcesses
from whichrank.run.watch.launch import Job, settings
from whichrank.run.watch.output.streams import Streams, open_streams
from whichrank.run.watch.results_folder import fresh_folder, open_folder
from whichrank.run.watch.run_record import RESULTS, RunRecord, Tell
from whichrank.run.watch.scope import Scope, ThisHost
from whichrank.run.watch.watcher import Policy, Watcher

if TYPE_CHECKING:
    from whichrank.run.nodes.peers import Peers

UPLOADS = ".uploads"
INTERESTING = ("bundle", "torch", "attempts", "guard", "verdict.json", "resumed")
"""What makes a folder worth to be kept that nobody asked for."""
GRACE_S = 10.0
"""From SIGTERM to SIGKILL, when the policy is to end the job."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a job is to be run."""

    policy: Policy = "report"
    purpose: Purpose = "production"
    network: bool = False
    """Whether to set how it communicates, too."""
    verbose: bool = False
    guard: str = ""
    """What the guard inside the ranks is to compare; "" for none."""
    guard_stop: bool = False


@dataclass(slots=True)
class _Launch:
    """One start of the command."""

    job: Job
    added: Mapping[str, str]
    folder: Path | None
    output: Output
    command: Sequence[str] = ()
    watcher: Watcher | None = None
    thread: threading.Thread | None = None


def run(
    command: Sequence[str], out: Path | None, wish: Wish, *, tell: Tell, audience: Audience | None = None,
    plan: Plan | None = None, peers: Peers | None = None,
) -> int:  # fmt: skip
    """Run the command watched, again and again where the plan says so; returns its code, negative for a signal."""
    given, scheduler = out is not None, Scheduler.here(requeues=plan is not None and plan.requeue)
    out = _place(out, scheduler.slurm, peers, tell)
    if not given:
        tell(f"the results go to {out}")
    audience = audience or Audience()
    restarts, known = None, Trap()
    earlier = requeue.take_over(out, scheduler.slurm, RESULTS)
    if plan is not None:
        known = trap(command, os.environ)
        restarts = Restarts(plan, out, tell, own_store=known.own_store, attempts=[*earlier])
        audience.observers.insert(0, restarts)
        if known.told:
            tell(known.told)
    before: Watcher | None = None
    while True:
        arguments, more = restarts.prepare() if restarts is not None else ([], {})
        level = restarts.level if restarts is not None else escalation.LEVELS[0]
        guard = wish.guard or level.guard
        variables, folder = _prepare(out, replace(wish, guard=guard), tell, given=given)
        added = {**variables, **known.variables, **more}
        if wish.verbose and before is None:
            _tell_settings(added, tell)
        launch = _launch([*command, *arguments], added, folder, out, given=given)
        job = launch.job
        scheduler.begin()
        try:
            if folder is not None:
                _watch(launch, out, wish, tell, audience, peers)
                watcher = _succeed(launch, before, earlier)
                watcher.record.scheduler = scheduler
                watcher.gdb = watcher.gdb or level.gdb
                if guard:
                    watcher.guard_with(folder, stop=wish.guard_stop)
                job.passes_on = Ear(job, watcher, end, tell)
                if restarts is not None:
                    restarts.watch(watcher.record.job_processes, watcher.end_job)
                    watcher.record.extra = restarts.told
                launch.thread = threading.Thread(target=watcher.run, name="watcher", daemon=True)
                launch.thread.start()
        except Exception as error:  # noqa: BLE001 - the job has been started: it is waited for, whatever happens
            tell(f"can't watch ({type(error).__name__}: {error}); the job goes on unwatched")
        code, again = _follow(launch, restarts, scheduler, tell)
        if folder is not None:
            private.leave(folder)
        if not again:
            _tidy(out, given=given)
            queue_again(scheduler, restarts, job, code)
            return code
        before = launch.watcher or before


def _follow(launch: _Launch, restarts: Restarts | None, scheduler: Scheduler, tell: Tell) -> tuple[int, bool]:
    """Until this launch has ended and been reported on; its code, and whether there is to be another."""
    job, watcher = launch.job, launch.watcher
    try:
        code = job.wait()
        job.streams.drain()
    finally:
        job.release(unless=scheduler.ends_it(job.process.returncode))
    if watcher is not None and launch.thread is not None:
        _finish(watcher, launch.thread, code, tell, asked=job.asked_to_end)
    again = restarts is not None and _again(restarts, watcher, job, code)
    job.release()
    job.streams.close()
    return code, again


def _launch(
    command: Sequence[str], variables: Mapping[str, str], folder: Path | None, out: Path, *, given: bool
) -> _Launch:
    streams = open_streams(folder) if folder is not None else Streams()
    output = Output.of_this_process(streams.copies)
    try:
        return _Launch(Job(command, variables, streams), variables, folder, output, command)
    except UsageError:
        streams.abandon()
        if folder is not None:
            private.remove(folder)
        _tidy(out, given=given)
        with contextlib.suppress(OSError):
            out.rmdir()  # nothing was started and nothing is in it
        raise


def _tell_settings(added: Mapping[str, str], tell: Tell) -> None:
    for name, value in sorted(added.items()):
        tell(f"sets {name}={value}")


def _place(out: Path | None, slurm: Slurm | None, peers: Peers | None, tell: Tell) -> Path:
    """Where the results of this process go; whoever shares the folder with others gets one of its own in there."""
    if out is None and slurm is None:
        try:
            return fresh_folder()
        except OSError as error:
            raise UsageError(f"can't create a folder for results: {error.strerror}", "Give one by --out.") from error
    out = (out or (slurm.folder if slurm is not None else fresh_folder())).absolute()
    if peers is not None and peers.link.side is not None:
        out = peers.place(out)
    elif slurm is not None:
        out = slurm.apart(out)
    return open_folder(out, tell, goes_on=partial(requeue.same_job, slurm))


def _succeed(launch: _Launch, before: Watcher | None, earlier: list[Attempt]) -> Watcher:
    """Go on counting where the watcher of the launch before has ended, or the start of the job before."""
    watcher = launch.watcher
    assert watcher is not None  # noqa: S101 - for the type checker
    record = watcher.record
    record.base, record.earlier = len(earlier), [attempt.brief() for attempt in earlier]
    if before is not None:
        record.base = before.record.base + before.record.attempt + 1
        record.earlier, record.alarms = before.record.earlier, before.record.alarms
    return watcher


def _watch(launch: _Launch, out: Path, wish: Wish, tell: Tell, audience: Audience, peers: Peers | None) -> None:
    job, folder = launch.job, launch.folder
    assert folder is not None  # noqa: S101 - for the type checker
    with contextlib.suppress(OSError):  # a full disk; whoever sweeps finds the job by its environment
        private.claim(folder, job.process.pid)
        private.note_results(folder, out)
    scope: Scope = ThisHost()
    if peers is not None:
        from whichrank.run.nodes.all_nodes import AllNodes

        scope = AllNodes(peers)
        peers.link.start(out / UPLOADS)
    places = torch_places({**os.environ, **launch.added})
    record = RunRecord(
        JobProcesses(folder), out, tell, output=launch.output, places=places, job_pid=job.process.pid,
        audience=audience, settings=launch.added,
    )  # fmt: skip
    launch.watcher = Watcher(record, scope, policy=wish.policy, end_job=lambda: end(job), may_pause_launcher=True)
    audience.begin(out)
    audience.observers[:] = [each for each in audience.observers if not isinstance(each, Conditions)]
    audience.observers.append(Conditions(out, folder, launch.command))


def _again(restarts: Restarts, watcher: Watcher | None, job: Job, code: int) -> bool:
    """Whether to launch once more, after the wait that is due; the evidence of this launch is put aside then."""
    outside = watcher is not None and not job.ended_by_us and _was_signalled(watcher.record.job_processes)
    asked = job.asked_to_end or (watcher is not None and watcher.record.scheduler.ends_it(code))
    again = restarts.again(code, asked=asked, outside=outside, hung=job.ended_by_us)
    if again:
        if watcher is not None:
            watcher.record.save("restarting", exit_code=code)
            everyone = watcher.record.job_processes.members.values()
            end_processes((m.words.pid, m.words.start_ticks) for m in everyone if not m.words.flags & BELOW)
        again = restarts.pause()
    if watcher is None:
        return again
    if again:
        try:
            watcher.close_attempt(watcher.record.attempt)
        except Exception as error:  # noqa: BLE001 - the job's return is worth more than its papers
            restarts.tell(f"can't put the evidence of this attempt aside: {type(error).__name__}: {error}")
    elif restarts.stopped and code != 0 and not asked:
        watcher.record.note_alarm("gave up", restarts.stopped)
        restarts.tell(f"the job is not started again: {restarts.stopped}")
    if not again:
        watcher.record.save("ended", exit_code=code, ended_on_request=asked)
    return again


def _was_signalled(job_processes: JobProcesses) -> bool:
    """Whether the launcher says that somebody sent it a signal; torch's agent raises this then."""
    return any(
        not m.words.is_rank and m.words.error.startswith("SignalException") for m in job_processes.members.values()
    )


def _prepare(out: Path, wish: Wish, tell: Tell, *, given: bool) -> tuple[dict[str, str], Path | None]:
    """The variables of the job, and its private folder; without one the job runs on unwatched, and it is said."""
    try:
        private_folder(out / "torch")
    except OSError as error:
        if given:
            raise UsageError(f"can't create the folder {out}: {error.strerror}", "Give --out another place.") from error
        tell(f"there is no place for evidence ({error}): the job runs unwatched")
        return {}, None
    variables = {
        **settings(wish.purpose, out / "torch", os.environ, network=wish.network),
        **ras.own_address(os.environ),
    }
    private.sweep()
    try:
        folder = private.make()
    except OSError as error:
        tell(f"there is no place for a private folder ({error}): the job runs unwatched")
        return variables, None
    return {**variables, **private.variables(folder, os.environ, wish.guard)}, folder


def _finish(watcher: Watcher, thread: threading.Thread, code: int, tell: Tell, *, asked: bool) -> None:
    """The end of the watch; an error in here must not change the job's code."""
    watcher.stop()
    thread.join(60.0)
    by_scheduler = watcher.record.scheduler.ends_it(code)
    try:
        if by_scheduler or not asked:
            watcher.finish(code)
        else:
            watcher.record.report_slowness()
        watcher.record.save("ended", exit_code=code, ended_on_request=asked or by_scheduler)
    except Exception as error:  # noqa: BLE001 - the job's code is worth more
        tell(f"can't report on the job: {type(error).__name__}: {error}")
    _left_behind(watcher, tell)


def _left_behind(watcher: Watcher, tell: Tell) -> None:
    """Ranks that outlive their launcher, as when it was killed: told, and ended where that is the policy."""
    left = [
        m.words
        for m in watcher.record.job_processes.ranks()
        if m.words.is_rank and _lives(m.words.pid, m.words.start_ticks)
    ]
    if not left:
        return
    named = ", ".join(f"rank {words.rank} (process {words.pid})" for words in left[:8]) + (" …" if left[8:] else "")
    if watcher.policy != "end":
        tell(f"the launcher has ended, and these still run: {named}")
        return
    tell(f"the launcher has ended; ending what it left: {named}")
    for words in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(words.pid, signal.SIGTERM)
    end_processes((words.pid, words.start_ticks) for words in left)


def _tidy(out: Path, *, given: bool) -> None:
    """A folder that nobody asked for and that holds nothing of interest goes."""
    shutil.rmtree(out / UPLOADS, ignore_errors=True)
    with contextlib.suppress(OSError):
        for path in (out / "torch").iterdir():
            if path.is_fifo():  # torch's own doorbells, of no use without the job
                path.unlink()
        (out / "torch").rmdir()
    if given or any((out / name).exists() for name in INTERESTING):
        return
    for name in ("run.json", "conditions.json", "history.jsonl", "history.older.jsonl"):
        (out / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        out.rmdir()


def end(job: Job) -> None:
    """End the job and what it started: by pid and start time, first politely."""
    job.ended_by_us = True
    everyone = processes.everybody()
    meant = [(pid, everyone[pid].start_ticks) for pid in processes.below(job.process.pid, everyone)]
    job.tell(signal.SIGTERM)
    end_processes(meant)
    # The launcher itself ends when its ranks have gone, with a code of its own.
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and job.process.poll() is None:
        time.sleep(0.2)
    job.tell(signal.SIGKILL)


def end_processes(meant: Iterable[tuple[int, int]]) -> None:
    """Wait for these to end, by pid and start time, and end those that don't."""
    waiting = [each for each in meant if processes.same(*each)]
    deadline = time.monotonic() + GRACE_S
    while waiting and time.monotonic() < deadline:
        time.sleep(0.2)
        waiting = [each for each in waiting if _lives(*each)]
    for pid, start in waiting:
        if processes.same(pid, start):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _lives(pid: int, start_ticks: int) -> bool:
    row = processes.stat(pid)
    return row is not None and row.start_ticks == start_ticks and row.state not in "ZX"
