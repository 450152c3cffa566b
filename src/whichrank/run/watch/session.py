"""`whichrank run` as one call: private folder, settings, the job, its watcher, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.evidence.collectors import processes, ras
from whichrank.model.errors import UsageError
from whichrank.model.settings import Purpose
from whichrank.run.monitoring.listeners import Audience
from whichrank.run.resume import requeue
from whichrank.run.resume.decision import Attempt, Plan, Trap, trap
from whichrank.run.resume.graceful_end import Ear, queue_again
from whichrank.run.resume.restarts import Restarts
from whichrank.run.resume.scheduler import Scheduler
from whichrank.run.resume.slurm import Slurm
from whichrank.run.watch import private
from whichrank.run.watch.keeper import RESULTS, Tell
from whichrank.run.watch.launch import Job, settings
from whichrank.run.watch.places import Output, Torch, torch_places
from whichrank.run.watch.processes import Crew
from whichrank.run.watch.watcher import Policy, Watcher

if TYPE_CHECKING:
    from whichrank.run.nodes.peers import Fellows

PARCELS = ".parcels"
GRACE_S = 10.0
"""From SIGTERM to SIGKILL, when the policy is to end the job."""


def fresh_folder() -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(tempfile.gettempdir()) / f"whichrank-run-{stamp}-{os.getpid()}"


def run(  # noqa: PLR0913, PLR0915 - what the command line asks for
    command: Sequence[str], out: Path | None, *, policy: Policy = "report", purpose: Purpose = "production", tell: Tell,
    audience: Audience | None = None, plan: Plan | None = None, fellows: Fellows | None = None,
    guard: str = "", guard_stop: bool = False,
) -> int:  # fmt: skip
    """Run the command watched, again and again where the plan says so; returns its code, negative for a signal."""
    given, scheduler = out is not None, Scheduler.here(requeues=plan is not None and plan.requeue)
    out = _place(out, scheduler.slurm, fellows)
    audience = audience or Audience()
    restarts, known = None, Trap()
    earlier = requeue.take_over(out, scheduler.slurm, RESULTS)
    if plan is not None:
        known = trap(command, os.environ)
        restarts = Restarts(plan, out, tell, own_store=known.own_store, attempts=[*earlier])
        audience.listeners.insert(0, restarts)
        if known.told:
            tell(known.told)
    before: Watcher | None = None
    while True:
        arguments, more = restarts.prepare() if restarts is not None else ([], {})
        variables, folder = _prepare(out, purpose, tell, given=given, guard=guard)
        output = Output.of_this_process()
        job = _launch([*command, *arguments], {**variables, **known.variables, **more}, folder)
        scheduler.begin()
        watcher = thread = None
        try:
            if folder is not None:
                places = torch_places({**os.environ, **variables})
                watcher = _watcher(job, Crew(folder), out, tell, policy, places, output, audience, fellows=fellows)
                audience.begin(out)
                _succeed(watcher, before, earlier)
                watcher.scheduler = scheduler
                if guard:
                    watcher.guard_with(folder, stop=guard_stop)
                job.passes_on = Ear(job, watcher, end, tell)
                if restarts is not None:
                    restarts.watch(watcher.crew, watcher.end_job)
                    watcher.extra = restarts.told
                thread = threading.Thread(target=watcher.run, name="watcher", daemon=True)
                thread.start()
        except Exception as error:  # noqa: BLE001 - the job has been started: it is waited for, whatever happens
            tell(f"can't watch ({type(error).__name__}: {error}); the job goes on unwatched")
        try:
            code = job.wait()
        finally:
            job.release(unless=scheduler.ends_it(job.process.returncode))
        if watcher is not None and thread is not None:
            _finish(watcher, thread, code, tell, asked=job.asked_to_end)
        again = restarts is not None and _again(restarts, watcher, job, code)
        job.release()
        if folder is not None:
            private.remove(folder)
        if not again:
            _tidy(out, given=given)
            queue_again(scheduler, restarts, job, code)
            return code
        before = watcher or before


def _launch(command: Sequence[str], variables: Mapping[str, str], folder: Path | None) -> Job:
    try:
        return Job(command, variables)
    except UsageError:
        if folder is not None:
            private.remove(folder)
        raise


def _place(out: Path | None, slurm: Slurm | None, fellows: Fellows | None) -> Path:
    """Where the results of this process go; whoever shares the folder with others gets one of its own in there."""
    if out is None and slurm is None:
        return fresh_folder()
    out = (out or (slurm.folder if slurm is not None else fresh_folder())).absolute()
    if fellows is not None and fellows.link.side is not None:
        return fellows.place(out)
    return slurm.apart(out) if slurm is not None else out


def _succeed(watcher: Watcher, before: Watcher | None, earlier: list[Attempt]) -> None:
    """Go on counting where the watcher of the launch before has ended, or the start of the job before."""
    watcher.base, watcher.earlier = len(earlier), [attempt.brief() for attempt in earlier]
    if before is not None:
        watcher.base = before.base + before.attempt + 1
        watcher.earlier, watcher.alarms = before.earlier, before.alarms


def _watcher(  # noqa: PLR0913
    job: Job, crew: Crew, out: Path, tell: Tell, policy: Policy, places: Torch, output: Output, audience: Audience,
    *, fellows: Fellows | None,
) -> Watcher:  # fmt: skip
    with contextlib.suppress(OSError):  # a full disk; whoever sweeps finds the job by its environment
        private.claim(crew.folder, job.process.pid)
    kind: Callable[..., Watcher] = Watcher
    if fellows is not None:
        from whichrank.run.nodes.watcher import NodeWatcher

        kind = partial(NodeWatcher, fellows=fellows)
        fellows.link.start(out / PARCELS)
    return kind(
        crew, out, tell, policy=policy, end_job=lambda: end(job), places=places, output=output,
        job_pid=job.process.pid, holds_door=True, audience=audience,
    )  # fmt: skip


def _again(restarts: Restarts, watcher: Watcher | None, job: Job, code: int) -> bool:
    """Whether to launch once more, after the wait that is due; the evidence of this launch is put aside then."""
    outside = watcher is not None and not job.ended_by_us and _was_signalled(watcher.crew)
    asked = job.asked_to_end or (watcher is not None and watcher.scheduler.ends_it(code))
    again = restarts.again(code, asked=asked, outside=outside, hung=job.ended_by_us)
    if again:
        if watcher is not None:
            watcher.save("restarting", exit_code=code)
            end_processes((m.words.pid, m.words.start_ticks) for m in watcher.crew.members.values())
        again = restarts.pause()
    if watcher is None:
        return again
    if again:
        try:
            watcher.close_attempt(watcher.attempt)
        except Exception as error:  # noqa: BLE001 - the job's return is worth more than its papers
            restarts.tell(f"can't put the evidence of this attempt aside: {type(error).__name__}: {error}")
    elif restarts.stopped and code != 0 and not asked:
        watcher.note_alarm("gave up", restarts.stopped)
        restarts.tell(f"the job is not started again: {restarts.stopped}")
    if not again:
        watcher.save("ended", exit_code=code, ended_on_request=asked)
    return again


def _was_signalled(crew: Crew) -> bool:
    """Whether the launcher says that somebody sent it a signal; torch's agent raises this then."""
    return any(not m.words.is_rank and m.words.error.startswith("SignalException") for m in crew.members.values())


def _prepare(
    out: Path, purpose: Purpose, tell: Tell, *, given: bool, guard: str = ""
) -> tuple[dict[str, str], Path | None]:
    """The variables of the job, and its private folder; without one the job runs on unwatched, and it is said."""
    try:
        (out / "torch").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if given:
            raise UsageError(f"can't make the folder {out}: {error.strerror}", "Give --out another place.") from error
        tell(f"there is no place for evidence ({error}): the job runs unwatched")
        return {}, None
    variables = {**settings(purpose, out / "torch", os.environ), **ras.own_address(os.environ)}
    private.sweep()
    try:
        folder = private.make()
    except OSError as error:
        tell(f"there is no place for a private folder ({error}): the job runs unwatched")
        return variables, None
    return {**variables, **private.variables(folder, os.environ, guard)}, folder


def _finish(watcher: Watcher, thread: threading.Thread, code: int, tell: Tell, *, asked: bool) -> None:
    """The end of the watch; an error in here must not change the job's code."""
    watcher.stop()
    thread.join(60.0)
    by_scheduler = watcher.scheduler.ends_it(code)
    try:
        if by_scheduler or not asked:
            watcher.finish(code)
        watcher.save("ended", exit_code=code, ended_on_request=asked or by_scheduler)
    except Exception as error:  # noqa: BLE001 - the job's code is worth more
        tell(f"can't report on the job: {type(error).__name__}: {error}")
    _left_behind(watcher, tell)


def _left_behind(watcher: Watcher, tell: Tell) -> None:
    """Ranks that outlive their launcher, as when it was killed: told, and ended where that is the policy."""
    left = [m.words for m in watcher.crew.ranks() if m.words.is_rank and _lives(m.words.pid, m.words.start_ticks)]
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
    shutil.rmtree(out / PARCELS, ignore_errors=True)
    with contextlib.suppress(OSError):
        for path in (out / "torch").iterdir():
            if path.is_fifo():  # torch's own doorbells, of no use without the job
                path.unlink()
        (out / "torch").rmdir()
    if given or any((out / name).exists() for name in ("bundle", "torch", "attempts")):
        return
    for name in ("run.json", "history.jsonl", "history.older.jsonl"):
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
