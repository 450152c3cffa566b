"""Ask the processes of a job for what only they know, and wait no longer than agreed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from whichrank.evidence.collectors import processes
from whichrank.run.watch.job_files import Torch
from whichrank.run.watch.job_processes import JobProcesses, Member

Depth = Literal["quick", "full"]

TORCH_S = 3.0
"""For a dump that torch itself writes: it takes about a second."""
HELD_S = 0.5
"""For a process whose interpreter is held: it hardly answers."""


def ask(job_processes: JobProcesses, members: Iterable[Member], depth: Depth, token: str) -> list[Member]:
    """Ask processes for their stacks, connections and dumps; returns those that can hear."""
    request = f"{depth}:{token}:{os.getpid()}\n".encode()
    return [member for member in members if ring(job_processes.folder / f"{member.name}.ask", request)]


def ring_torch(places: Torch, living: Sequence[Member]) -> list[Member]:
    """NCCL jobs: a byte into torch's own pipe makes it write its dump, from a thread without Python."""
    heard = []
    for member in living:
        path = places.pipe_of(member.rank)
        try:
            if path is not None and path.is_fifo() and ring(path, b"1\n"):
                heard.append(member)
        except OSError:
            continue
    return heard


def await_torch(places: Torch, rung: Sequence[Member], since_ns: int) -> None:
    """Until torch has written the dumps that it was asked for, or the time is up."""
    deadline = time.monotonic() + TORCH_S
    paths = [path for m in rung if not m.stopped and (path := places.dump_of(m.rank)) is not None]
    sizes: dict[Path, int] = {}
    while paths and time.monotonic() < deadline:
        time.sleep(0.1)
        paths = [path for path in paths if not _written(path, since_ns, sizes)]


def _written(path: Path, since_ns: int, sizes: dict[Path, int]) -> bool:
    """Newer than the question, and no longer growing."""
    try:
        status = path.stat()
    except OSError:
        return False
    before, sizes[path] = sizes.get(path), status.st_size
    return status.st_mtime_ns >= since_ns and status.st_size > 0 and before == status.st_size


def ring(path: Path, words: bytes) -> bool:
    """Write into a pipe that somebody reads."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(pipe, words)
    except OSError:
        return False
    finally:
        os.close(pipe)
    return True


def await_all(job_processes: JobProcesses, asked: Sequence[Member], token: str, patience_s: float) -> None:
    """Until all have answered, or the time is up."""
    began = time.monotonic()
    waiting = list(asked)
    # Judged now: nobody reads their words anew while they look up their frames, and all would seem held soon.
    held = {m.name for m in asked if m.holds_gil}
    while waiting and (waited := time.monotonic() - began) < patience_s:
        time.sleep(0.05)
        waiting = [m for m in waiting if not _answered(job_processes.folder, m, token)]
        waiting = [m for m in waiting if _lives(m)]
        if waited > HELD_S:
            waiting = [m for m in waiting if m.name not in held]


def ask_quickly(job_processes: JobProcesses, members: Sequence[Member], token: str, patience_s: float) -> None:
    """Stacks and dumps without frames, and no more than a moment of waiting for them."""
    began = time.monotonic()
    waiting = ask(job_processes, members, "quick", token)
    while waiting and time.monotonic() - began < patience_s:
        time.sleep(0.02)
        waiting = [m for m in waiting if _lives(m)]
        waiting = [m for m in waiting if not _dumped(job_processes.folder, m, token)]


def _lives(member: Member) -> bool:
    """One that has ended stays a zombie while its launcher is held, and answers no more."""
    row = processes.stat(member.words.pid)
    return row is not None and row.start_ticks == member.words.start_ticks and row.state not in "ZX"


def framed(folder: Path, member: Member) -> str:
    """The dump with frames that is as new as its last collective, whoever asked for it; "" where there is none."""
    for path in folder.glob(f"{member.name}.*.frames.*"):
        try:
            if path.stat().st_mtime_ns < member.words.changed_ns or path.name.endswith(".part"):
                continue
        except OSError:
            continue
        token = path.name[len(member.name) + 1 :].rpartition(".")[0]
        # A process has two recorders, and the one that it does not use answers at once.
        plain = folder.glob(f"{member.name}.{token[: -len('.frames')]}.*")
        kinds = [each.suffix for each in plain if each.suffix in (".fr", ".nccl") and ".frames." not in each.name]
        if all((folder / f"{member.name}.{token}{kind}").exists() for kind in kinds):
            return token
    return ""


def _dumped(folder: Path, member: Member, token: str) -> bool:
    kinds = ("fr", "nccl") if member.words.enqueued else ("stacks",)
    return any((folder / f"{member.name}.{token}.{kind}").exists() for kind in kinds)


def _answered(folder: Path, member: Member, token: str) -> bool:
    if not (folder / f"{member.name}.{token}.stacks").exists():
        return False
    if not member.words.enqueued:  # nothing recorded: there will be no dump
        return True
    return bool(framed(folder, member))
