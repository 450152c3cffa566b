"""Where the threads of a rank are: by its own words, by py-spy, by a signal, and on request by gdb."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import outline, processes, tools
from whichrank.run.watch.capture.aside import Aside
from whichrank.run.watch.capture.files import read
from whichrank.run.watch.job_processes import JobProcesses, Member

SIGNALLED_S = 1.0
SPIED_S = 30.0
"""For py-spy's answer when it looks at many processes; each look has a smaller limit of its own."""
NATIVE_S = 4.0
"""For the C frames of all ranks together: each stands still meanwhile."""


SPIES = 4
"""Of them at the same time, per core."""


def spy_on_all(
    pids: Sequence[int], look: Callable[[int], tuple[bytes, str]] = tools.stack, until: float = float("inf")
) -> dict[int, Aside[tuple[bytes, str]]]:
    """Begin to look at all processes, a few at a time: pid -> py-spy's answer, on its way."""
    turn = threading.Semaphore(SPIES * (os.cpu_count() or 1))

    def spy(pid: int) -> tuple[bytes, str]:
        with turn:
            return look(pid) if time.monotonic() < until else (b"", "the time was up")

    return {pid: Aside(partial(spy, pid)) for pid in pids}


def keep_outline(bundle: Bundle, ranks: Sequence[Member]) -> None:
    """Where the loops of the scripts are that the stacks name."""
    living = [member.words.pid for member in ranks if member.alive]
    folder = processes.folder(living[0]) if living else None
    texts = (path.read_bytes() for path in sorted((bundle.folder / "stacks").glob("rank_*.txt")))
    found = outline.of_stacks(texts, folder)
    if found:
        bundle.add("code/outline.json", found, "outline")


def stacks_of(
    job_processes: JobProcesses,
    bundle: Bundle,
    member: Member,
    token: str,
    spies: Mapping[int, Aside[tuple[bytes, str]]],
) -> None:
    """Its own answer; else py-spy; else, where the interpreter is held, the signal that it set up for this."""
    rank, pid = member.rank, member.words.pid
    path = f"stacks/rank_{rank}.txt"
    own = read(job_processes.folder / f"{member.name}.{token}.stacks")
    if own:
        bundle.add(path, own, "stacks", rank=rank, pid=pid, note="written by the process itself")
        return
    spied, why = spies[pid].result(SPIED_S) if pid in spies else tools.stack(pid)
    if spied:
        bundle.add(path, spied, "stacks", rank=rank, pid=pid, note="py-spy")
        return
    signalled = b"" if member.stopped else _by_signal(job_processes, member)
    if signalled:
        bundle.add(path, signalled, "stacks", rank=rank, pid=pid, note="faulthandler, the interpreter is held")
    else:
        bundle.lacks("stacks", f"{'the process is stopped; ' if member.stopped else 'it did not answer; '}{why}", rank)


def begin_native(
    members: Sequence[Member], before: Mapping[int, Aside[tuple[bytes, str]]]
) -> list[tuple[Member, Aside[tuple[bytes, str]]]]:
    """Begin to read the C frames of ranks that others wait for: those who wait all show the same."""
    meant = [m for m in members if not m.stopped and (not m.words.waiting or m.holds_gil)]

    def look(pid: int) -> tuple[bytes, str]:
        if pid in before:
            with suppress(Exception):  # told by the one who asked for it
                before[pid].result(SPIED_S)
        return tools.native_stack(pid)

    spies = spy_on_all([m.words.pid for m in meant], look, time.monotonic() + NATIVE_S)
    return [(member, spies[member.words.pid]) for member in meant]


def keep_native(bundle: Bundle, member: Member, spy: Aside[tuple[bytes, str]]) -> None:
    with_c, why = spy.result(SPIED_S)
    _keep(bundle, member, "native", with_c, why)
    path = f"stacks/rank_{member.rank}.txt"
    if with_c and not (bundle.folder / path).exists():
        bundle.add(path, with_c, "stacks", rank=member.rank, pid=member.words.pid, note="py-spy --native")


def debugged_stacks(bundle: Bundle, members: Sequence[Member]) -> None:
    """What gdb shows of every rank; asked for by the user, since each stands still for seconds."""
    for member in members:
        shown, why = tools.debugged(member.words.pid)
        _keep(bundle, member, "gdb", shown, why)


def _keep(bundle: Bundle, member: Member, kind: str, data: bytes, why: str) -> None:
    rank, pid = member.rank, member.words.pid
    if data:
        bundle.add(f"stacks/rank_{rank}.{kind}.txt", data, f"{kind} stacks", rank=rank, pid=pid)
    else:
        bundle.lacks(f"{kind} stacks", why, rank)
    row = processes.stat(pid)
    if row is not None and row.state == "T" and not member.stopped and row.start_ticks == member.words.start_ticks:
        # A tracer that had to be killed in the act may leave its stop behind.
        os.kill(pid, signal.SIGCONT)


def _by_signal(job_processes: JobProcesses, member: Member) -> bytes:
    """Sent only where the process has kept its handler and the file behind it: by default it would kill."""
    words = member.words
    target = job_processes.folder / f"{member.name}.signalled"
    if words.stack_fd < 0 or not processes.same(words.pid, words.start_ticks):
        return b""
    try:
        behind = Path(f"/proc/{words.pid}/fd/{words.stack_fd}").readlink()
        caught = next(
            int(line.split()[1], 16) for line in processes.status(words.pid).splitlines() if line.startswith("SigCgt:")
        )
        if behind.name != target.name or not caught >> (words.stack_signal - 1) & 1:
            return b""
        before = target.stat().st_size
        os.kill(words.pid, words.stack_signal)
    except (OSError, StopIteration, ValueError):
        return b""
    deadline, seen = time.monotonic() + SIGNALLED_S, b""
    while time.monotonic() < deadline:
        time.sleep(0.1)
        found = read(target)[before:]
        if found and found == seen:
            break
        seen = found
    return seen
