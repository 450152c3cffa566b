"""Take the evidence of a live job into a bundle: bounded, and no failure of one step stops another."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import environment, processes, tools
from whichrank.model import last_words as layout
from whichrank.run.crew import Crew, Member
from whichrank.run.places import Torch

Depth = Literal["quick", "full"]

ANSWER_S = 8.0
"""Stacks and entries take milliseconds; the first look-up of frames 2 to 3 s of CPU in every rank at once."""
HELD_S = 0.5
"""For a process whose interpreter is held: it hardly answers."""
SIGNALLED_S = 1.0
MOST = 256 << 20
NO_PLACES = Torch()


def ask(crew: Crew, members: Iterable[Member], depth: Depth, token: str) -> list[Member]:
    """Ask processes for their stacks and dumps; returns those that can hear."""
    asked = []
    for member in members:
        try:
            pipe = os.open(crew.folder / f"{member.name}.ask", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(pipe, f"{depth}:{token}\n".encode())
            asked.append(member)
        except OSError:
            continue
        finally:
            os.close(pipe)
    return asked


def capture(crew: Crew, bundle: Bundle, token: str, *, patience_s: float = ANSWER_S, places: Torch = NO_PLACES) -> None:
    """Everything that can be had now, of every rank."""
    ranks = crew.ranks()
    living = [m for m in ranks if m.alive]
    asked = ask(crew, [m for m in living if not m.stopped], "full", token)
    ring_torch(places, living)
    for member in living:
        host_view(bundle, member)
    bundle.add("host/processes.txt", processes.table(m.words.pid for m in living).encode(), "processes")
    _await(crew, asked, token, patience_s)
    for member in living:
        stacks_of(crew, bundle, member, token)
    gather(crew, bundle, token, places=places)
    report, why = tools.gpus()
    if report:
        bundle.add("host/nvidia-smi.txt", report, "gpu state")
    else:
        bundle.lacks("gpu state", why)


def ring_torch(places: Torch, living: Sequence[Member]) -> None:
    """NCCL jobs: a byte into torch's own pipe makes it write its dump, from a thread without Python."""
    for member in living:
        path = places.pipe_of(member.rank)
        try:
            if path is None or not path.is_fifo():
                continue
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(pipe, b"1\n")
        except OSError:
            continue
        finally:
            os.close(pipe)


def _await(crew: Crew, asked: Sequence[Member], token: str, patience_s: float) -> None:
    """Until all have answered, or the time is up."""
    began = time.monotonic()
    waiting = list(asked)
    while waiting and (waited := time.monotonic() - began) < patience_s:
        time.sleep(0.05)
        waiting = [m for m in waiting if not _answered(crew.folder, m, token)]
        waiting = [m for m in waiting if processes.same(m.words.pid, m.words.start_ticks)]
        if waited > HELD_S:
            waiting = [m for m in waiting if not m.held]


def ask_quickly(crew: Crew, members: Sequence[Member], token: str, patience_s: float) -> None:
    """Stacks and dumps without frames, and no more than a moment of waiting for them."""
    began = time.monotonic()
    waiting = ask(crew, members, "quick", token)
    while waiting and time.monotonic() - began < patience_s:
        time.sleep(0.02)
        waiting = [m for m in waiting if processes.same(m.words.pid, m.words.start_ticks)]
        waiting = [m for m in waiting if not _dumped(crew.folder, m, token)]


def _dumped(folder: Path, member: Member, token: str) -> bool:
    kinds = ("fr", "nccl") if member.words.enqueued else ("stacks",)
    return any((folder / f"{member.name}.{token}.{kind}").exists() for kind in kinds)


def _answered(folder: Path, member: Member, token: str) -> bool:
    if not (folder / f"{member.name}.{token}.stacks").exists():
        return False
    if not member.words.enqueued:  # nothing recorded: there will be no dump
        return True
    return bool(_framed(folder, member))


def _framed(folder: Path, member: Member) -> str:
    """The dump with frames that is as new as its last collective, whoever asked for it; "" where there is none."""
    for path in folder.glob(f"{member.name}.*.frames.*"):
        try:
            if path.stat().st_mtime_ns >= member.words.changed_ns and not path.name.endswith(".part"):
                return path.name.removeprefix(f"{member.name}.").rpartition(".")[0]
        except OSError:
            continue
    return ""


def host_view(bundle: Bundle, member: Member) -> None:
    """What the kernel says of a rank."""
    pid, rank = member.words.pid, member.rank
    bundle.add(f"host/proc.{pid}.status.txt", processes.status(pid).encode(), "process status", rank=rank, pid=pid)
    bundle.add(f"host/proc.{pid}.limits.txt", processes.limits(pid).encode(), "process limits", rank=rank, pid=pid)
    variables = environment.as_text(processes.environ(pid)).encode()
    bundle.add(f"environment/rank_{rank}.env", variables, "environment", rank=rank, pid=pid)


def stacks_of(crew: Crew, bundle: Bundle, member: Member, token: str) -> None:
    """Its own answer; else py-spy; else, where the interpreter is held, the signal that it set up for this."""
    rank, pid = member.rank, member.words.pid
    path = f"stacks/rank_{rank}.txt"
    own = _read(crew.folder / f"{member.name}.{token}.stacks")
    if own:
        bundle.add(path, own, "stacks", rank=rank, pid=pid, note="written by the process itself")
        return
    spied, why = tools.stack(pid)
    if spied:
        bundle.add(path, spied, "stacks", rank=rank, pid=pid, note="py-spy")
        return
    signalled = b"" if member.stopped else _by_signal(crew, member)
    if signalled:
        bundle.add(path, signalled, "stacks", rank=rank, pid=pid, note="faulthandler, the interpreter is held")
    else:
        bundle.lacks("stacks", f"{'the process is stopped; ' if member.stopped else 'it did not answer; '}{why}", rank)


def _by_signal(crew: Crew, member: Member) -> bytes:
    """Sent only where the process has kept its handler and the file behind it: by default it would kill."""
    words = member.words
    target = crew.folder / f"{member.name}.signalled"
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
        found = _read(target)[before:]
        if found and found == seen:
            break
        seen = found
    return seen


def gather(crew: Crew, bundle: Bundle, token: str, *, places: Torch = NO_PLACES) -> None:
    """What has been left in files so far: dumps, errors, the last words of every process."""
    for member in crew.ranks():
        _dump_of(crew, bundle, member, token, places)
        error = _read(crew.folder / f"{member.name}.error")
        if error:
            bundle.add(f"logs/rank_{member.rank}.error.txt", error, "error", rank=member.rank, pid=member.words.pid)
    document = {"whichrank_last_words": 1, "host": bundle.host, "processes": [told(m) for m in crew.ranks()]}
    text = json.dumps(document, indent=1) + "\n"
    bundle.add("last_words.json", text.encode(), "last words")


def _dump_of(crew: Crew, bundle: Bundle, member: Member, token: str, places: Torch) -> None:
    """The best dump that there is: the newest, with frames where they could be had in time."""
    rank, pid = member.rank, member.words.pid
    by_torch = _fresh(places.dump_of(rank), member)
    if by_torch:
        bundle.add(f"dumps/rank_{rank}", by_torch, "flight recorder", rank=rank, pid=pid, note="written by torch")
        return
    tried = ((_framed(crew.folder, member), "when asked"), (token, "when asked, without frames"),
             ("end", "when it failed, without frames"), ("kept", "in reserve, without frames"))  # fmt: skip
    for suffix, note in tried:
        taken = {kind: _read(crew.folder / f"{member.name}.{suffix}.{kind}") for kind in ("nccl", "fr")}
        # A job has one recorder for GPUs and one for the rest; the one that it does not use is empty.
        used = {kind: data for kind, data in taken.items() if b"profiling_name" in data}
        for place, data in zip(("dumps", "dumps_cpu"), used.values(), strict=False):
            bundle.add(f"{place}/rank_{rank}", data, "flight recorder", rank=rank, pid=pid, note=note)
        if used:
            return
    if member.words.phase < layout.JOINED:
        why = f"it had only {layout.PHASES[member.words.phase]}"
    else:
        why = "the process is stopped" if member.stopped else "it did not answer" if member.alive else "it has ended"
    bundle.lacks("flight recorder", why, rank)


def told(member: Member) -> dict[str, Any]:
    """The last words of a process, and how it ended, as plain values."""
    words = member.words
    code, number = processes.outcome(member.status) if member.status is not None else (None, None)
    return {
        "rank": words.rank,
        "pid": words.pid,
        "world_size": words.world if words.world > 0 else None,
        "attempt": words.attempt,
        "phase": layout.PHASES[words.phase],
        "alive": member.alive,
        "state": member.state or None,
        "exit_code": code,
        "signal": number,
        "signal_name": _name(number),
        "ended_ns": member.ended_ns,
        "started_ns": words.started_ns,
        "heard_ns": words.beat_ns,
        "changed_ns": words.changed_ns,
        "issued": words.enqueued,
        "completed": words.completed,
        "waiting": words.waiting,
        "in": words.operation or None,
        "place": words.place or None,
        "error": words.error.partition(":")[0] or None,
    }


def _fresh(path: Path | None, member: Member) -> bytes:
    """A dump that torch itself wrote, unless an earlier job left it there."""
    try:
        if path is None or path.stat().st_mtime_ns < member.words.started_ns:
            return b""
    except OSError:
        return b""
    return _read(path)


def _name(number: int | None) -> str | None:
    return signal.Signals(number).name if number in list(signal.Signals) else None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST)
    except OSError:
        return b""
