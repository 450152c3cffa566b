"""The stacks of a running job, now: py-spy on all of its processes side by side, each for a bounded time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from whichrank.evidence.collectors import processes, tools
from whichrank.evidence.readers.stacks import pyspy
from whichrank.model.errors import UsageError
from whichrank.model.views import Unseen
from whichrank.records.stack import ProcessStack
from whichrank.run.watch.collect import crew_of, the_only_job
from whichrank.run.watch.find_jobs import the_job

Found = list[tuple[int | None, ProcessStack]]
Who = tuple[int, int | None]
"""A pid and its rank."""
AT_ONCE = 4
"""Per core: py-spy mostly reads another process's memory and symbol tables."""


def live_stacks(
    pids: Sequence[int],
    *,
    native: bool,
    limit_s: float,
    job: str = "",
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Found, list[Unseen]]:
    """The stacks of the jobs that these processes belong to; without any, of the job of this name or the only one."""
    program = tools.py_spy()
    if program is None:
        raise UsageError("py-spy is not installed", "pip install py-spy, or give files with stacks.")
    who = list(dict.fromkeys(one for pid in pids or [the_only_job(job)] for one in members(pid)))
    found: Found = []
    missing: list[Unseen] = []
    options = ["--native"] if native else ["--nonblocking"]
    with ThreadPoolExecutor(AT_ONCE * (os.cpu_count() or 1)) as pool:
        commands = [[program, "dump", *options, "--pid", str(pid)] for pid, _ in who]
        for done, ((pid, rank), (text, why)) in enumerate(
            zip(who, pool.map(lambda command: tools.ask(command, limit_s), commands), strict=True), start=1
        ):
            stack = parsed(pid, text) if text else None
            if stack is not None:
                found.append((rank, stack))
            else:
                missing.append(Unseen(pid, rank, why or "py-spy told nothing"))
            if progress is not None:
                progress("reading stacks", done, len(who))
    return found, missing


def parsed(pid: int, text: bytes) -> ProcessStack | None:
    """The one process that py-spy was asked for."""
    parser = pyspy.TextParser(f"process {pid}")
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        parser.feed(number, line)
    parser.end()
    return parser.stacks[0] if parser.stacks else None


def members(pid: int) -> list[Who]:
    """The ranks of the job that a process belongs to; where there are none, the process and those below it."""
    if processes.stat(pid) is None:
        raise UsageError(f"there is no process {pid}", "Give the pid of the launcher (torchrun) or of a rank.")
    job = the_job(pid)
    job_processes = crew_of(job.launcher if job is not None else pid)
    ranks = job_processes.look() if job_processes.folder.is_dir() else job_processes.ranks()
    found: list[Who] = [(member.words.pid, member.rank) for member in ranks if member.alive]
    job_processes.close()
    if found:
        return found
    below = [one for one in processes.below(pid, processes.everybody()) if "python" in processes.command(one)[:200]]
    return [(one, None) for one in (pid, *below)]
