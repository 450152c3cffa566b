"""One command on every host of an engine: a file goes in, bytes come back. Bounded in time, size and hosts at once.

A host that is slow, silent or talkative costs its own answer and nothing else.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from whichrank.fleet.engines import Engine

AT_ONCE = 64
"""Hosts that are spoken to at the same time: ssh's key exchange costs both sides some 20 ms of CPU."""
_PIECE = 1 << 18
_REASONS = 8192


class Bounds(Struct, frozen=True):
    """What one host may cost."""

    limit_s: float = 30.0
    most: int = 256 << 20
    at_once: int = AT_ONCE


class Answer(Struct, frozen=True):
    """What a host sent, and when; `why` says what went wrong."""

    path: Path
    size: int = 0
    why: str = ""
    code: int | None = None
    """How its command ended; None where it was ended from here."""
    started_ns: int = 0
    first_ns: int = 0
    """When the first byte came; 0 where none did."""


def fetch(
    engine: Engine,
    command: Sequence[str],
    given: bytes,
    folder: Path,
    bounds: Bounds,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Answer]:
    """Run the command on all hosts with `given` as its standard input; its output goes to one file per host."""
    with tempfile.TemporaryFile() as inputs:
        inputs.write(given)
        inputs.flush()
        pool = ThreadPoolExecutor(max(1, min(bounds.at_once, len(engine.hosts))))
        stop = [False]
        try:
            tasks = {
                pool.submit(
                    _one, engine.wrap(host, command), inputs.fileno(), folder / f"{number:06d}", bounds, stop
                ): host
                for number, host in enumerate(engine.hosts)
            }
            found: dict[str, Answer] = {}
            for done, task in enumerate(as_completed(tasks), start=1):
                found[tasks[task]] = task.result()
                if progress is not None:
                    progress(done, len(tasks))
        finally:
            stop[0] = True  # Ctrl-C: those that wait don't begin, those that run are ended
            pool.shutdown(wait=True, cancel_futures=True)
    return {host: found[host] for host in engine.hosts}


def _one(command: list[str], inputs: int, target: Path, bounds: Bounds, stop: list[bool]) -> Answer:
    began, started_ns = time.monotonic(), time.time_ns()
    if stop[0]:
        return Answer(target, why="not asked any more")
    with tempfile.TemporaryFile() as errors, target.open("xb") as out:
        # Every child gets a position of its own in the same file.
        own = os.open(f"/proc/self/fd/{inputs}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            child = subprocess.Popen(  # noqa: S603 - what the user asked for, no shell
                command, stdin=own, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        except OSError as error:
            return Answer(target, why=f"{command[0]} can't be started: {error.strerror}", started_ns=started_ns)
        finally:
            os.close(own)
        size, first_ns, why = 0, 0, ""
        try:
            assert child.stdout is not None  # noqa: S101 - it is a pipe
            size, first_ns, why = _copy(child.stdout, out, began + bounds.limit_s, bounds, stop)
            code = None if why else _ended(child, began + bounds.limit_s)
        finally:
            _end(child)
        if code != 0:
            why = "; ".join(filter(None, (why, _reason(errors)))) or _how(code)
        return Answer(target, size, why, code, started_ns, first_ns)


def _copy(source: IO[bytes], out: IO[bytes], deadline: float, bounds: Bounds, stop: list[bool]) -> tuple[int, int, str]:
    size, first_ns = 0, 0
    while not stop[0]:
        left = deadline - time.monotonic()
        if left <= 0:
            return size, first_ns, f"no answer within {bounds.limit_s:.0f} s"
        if not select.select([source], [], [], min(left, 0.5))[0]:
            continue
        piece = os.read(source.fileno(), _PIECE)
        first_ns = first_ns or time.time_ns()
        if not piece:
            return size, first_ns, ""
        size += len(piece)
        if size > bounds.most:
            return size, first_ns, f"it sent more than {bounds.most >> 20} MiB"
        try:
            out.write(piece)
        except OSError as error:
            return size, first_ns, f"its answer can't be kept here: {error.strerror}"
    return size, first_ns, "interrupted"


def _ended(child: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Its output is complete: it has a moment more to end."""
    try:
        return child.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _reason(errors: IO[bytes]) -> str:
    """The last line that the command complained with."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _REASONS))
    text = errors.read(_REASONS).decode("utf-8", "replace")
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")


def _how(code: int | None) -> str:
    return "its command did not end" if code is None else f"its command ended with code {code}"
