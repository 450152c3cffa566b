"""`whichrank run` as one call: private folder, settings, the job, its watcher, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model.errors import UsageError
from whichrank.model.settings import Purpose
from whichrank.run import private
from whichrank.run.launch import Job, settings
from whichrank.run.places import Output, torch_places
from whichrank.run.watch import Policy, Tell, Watcher

GRACE_S = 10.0
"""From SIGTERM to SIGKILL, when the policy is to end the job."""


def fresh_folder() -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(tempfile.gettempdir()) / f"whichrank-run-{stamp}-{os.getpid()}"


def run(
    command: Sequence[str], out: Path | None, *, policy: Policy = "report", purpose: Purpose = "production", tell: Tell
) -> int:
    """Run the command watched; returns its code, negative for a signal."""
    given = out is not None
    out = (out or fresh_folder()).absolute()
    variables, folder = _prepare(out, purpose, tell, given=given)
    output = Output.of_this_process()
    job = Job(command, variables)
    watcher = None
    if folder is not None:
        places = torch_places({**os.environ, **variables})
        watcher = Watcher(folder, out, tell, policy, lambda: end(job), places, output, job.process.pid, holds_door=True)
        thread = threading.Thread(target=watcher.run, name="watcher", daemon=True)
        thread.start()
    try:
        code = job.wait()
    finally:
        job.release()
    if watcher is not None and folder is not None:
        watcher.stop()
        thread.join(60.0)
        _finish(watcher, code, tell, asked=job.asked_to_end)
        private.remove(folder)
        _tidy(out, given=given)
    return code


def _prepare(out: Path, purpose: Purpose, tell: Tell, *, given: bool) -> tuple[dict[str, str], Path | None]:
    """The variables of the job, and its private folder; without one the job runs on unwatched, and it is said."""
    try:
        (out / "torch").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if given:
            raise UsageError(f"can't make the folder {out}: {error.strerror}", "Give --out another place.") from error
        tell(f"there is no place for evidence ({error}): the job runs unwatched")
        return {}, None
    variables = settings(purpose, out / "torch", os.environ)
    try:
        folder = private.make()
    except OSError as error:
        tell(f"there is no place for a private folder ({error}): the job runs unwatched")
        return variables, None
    return {**variables, **private.variables(folder, os.environ)}, folder


def _finish(watcher: Watcher, code: int, tell: Tell, *, asked: bool) -> None:
    """The end of the watch; an error in here must not change the job's code."""
    try:
        if not asked:
            watcher.finish(code)
        watcher.save("ended", exit_code=code, ended_on_request=asked)
    except Exception as error:  # noqa: BLE001 - the job's code is worth more
        tell(f"can't report on the job: {type(error).__name__}: {error}")


def _tidy(out: Path, *, given: bool) -> None:
    """A folder that nobody asked for and that holds nothing of interest goes."""
    with contextlib.suppress(OSError):
        for path in (out / "torch").iterdir():
            if path.is_fifo():  # torch's own doorbells, of no use without the job
                path.unlink()
        (out / "torch").rmdir()
    if given or (out / "bundle").exists() or (out / "torch").exists():
        return
    for name in ("run.json", "history.jsonl"):
        (out / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        out.rmdir()


def end(job: Job) -> None:
    """End the job and what it started: by pid and start time, first politely."""
    everyone = processes.everybody()
    meant = [(pid, everyone[pid].start_ticks) for pid in processes.below(job.process.pid, everyone)]
    job.tell(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(processes.same(*each) for each in meant):
        time.sleep(0.2)
    for pid, start in meant:
        if processes.same(pid, start):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # The launcher itself ends when its ranks have gone, with a code of its own.
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and job.process.poll() is None:
        time.sleep(0.2)
    job.tell(signal.SIGKILL)
