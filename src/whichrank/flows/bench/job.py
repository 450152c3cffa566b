"""The ranks of a benchmark: started on all hosts, listened to, and ended in time whatever they do.

Nothing here waits forever: not for a rank that hangs in a collective, not for a host that does not answer, not for a
process that a wedged driver keeps alive.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from msgspec import Struct, field

from whichrank.model.errors import UsageError

Line = Mapping[str, Any]
_GRACE_S = 3.0
"""When the ranks of one host fail, those of the others may still say why."""
_LEAVE_S = 20.0
"""For ranks that have told everything, to leave the job."""
_END_S = 8.0
"""For ranks that were told to end; `worker.ranks` kills its own after five seconds."""
_KILL_S = 2.0


class Limits(Struct, frozen=True):
    """In seconds."""

    whole_s: float = 600.0
    start_s: float = 180.0
    """Until the first word: hosts import torch from a network disk, and many ranks meet."""
    silence_s: float = 120.0
    """Between two words."""

    @property
    def collective_s(self) -> float:
        """After which a collective gives up by itself: before we do, so that the ranks can say why."""
        return self.silence_s * 0.75


class Told(Struct):
    """What the first rank said, line by line, and why it was stopped if it was."""

    lines: list[Line] = field(default_factory=list)
    stopped: str = ""

    @property
    def measured(self) -> bool:
        return any("time_us" in line or "stragglers" in line for line in self.lines)

    @property
    def done(self) -> bool:
        return bool(self.lines) and "done" in self.lines[-1]

    @property
    def at(self) -> str:
        """What was being measured last."""
        name, octets = next((line["at"] for line in reversed(self.lines) if "at" in line), ("", 0))
        if not name:
            return "before the first collective"
        return f"in {name} of {octets} bytes" if octets else f"in {name}"


class Host:
    """The ranks of one host, as a child of ours."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.rest = b""
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(  # noqa: S603 - our own program, by the engine that the user chose
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        os.set_blocking(self.output, False)

    @property
    def output(self) -> int:
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        return self.process.stdout.fileno()

    def lines(self) -> list[Line] | None:
        """What came since; None at the end of the stream."""
        try:
            piece = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not piece:
            return None
        *whole, self.rest = (self.rest + piece).split(b"\n")
        found: list[Line] = []
        for raw in whole:
            with suppress(ValueError):
                line = json.loads(raw)
                if isinstance(line, dict):
                    found.append(line)
        return found

    def complaint(self) -> str:
        """The last line that says what went wrong, or else the last line."""
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - (1 << 20)))
        lines = [line.strip() for line in self.errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("rank ") or "Error" in line]
        if said or lines:
            return (said or lines)[-1][:300]
        code = self.process.poll()
        return "they said nothing" if code is None else f"they ended with code {code} and said nothing"

    def let_go(self) -> None:
        """End of standard input: `worker.ranks` ends its ranks, here or behind ssh."""
        with suppress(OSError, AttributeError):
            self.process.stdin.close()  # type: ignore[union-attr]

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def gone(self, deadline: float) -> bool:
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        with suppress(OSError, AttributeError):
            self.process.stdout.close()  # type: ignore[union-attr]
        self.errors.close()


@contextmanager
def started(commands: Mapping[str, Sequence[str]]) -> Iterator[list[Host]]:
    """The command of every host; all are ended together, and what can't be ended is left."""
    hosts: list[Host] = []
    try:
        for name, command in commands.items():
            try:
                hosts.append(Host(name, command))
            except OSError as error:
                raise UsageError(f"can't start {command[0]}: {error.strerror}", "Is it installed?") from error
        yield hosts
    finally:
        _end(hosts)


def _end(hosts: Sequence[Host]) -> None:
    for host in hosts:
        host.let_go()
    deadline = time.monotonic() + _END_S
    left = [host for host in hosts if not host.gone(deadline)]
    for host in hosts:
        host.kill()  # also what a supervisor that was killed has left behind
    deadline = time.monotonic() + _KILL_S
    for host in left:
        host.gone(deadline)
    for host in hosts:
        host.close()


def listen(hosts: Sequence[Host], limits: Limits, tell: Callable[[Line], None] = lambda _line: None) -> Told:
    """Until all ranks have ended, one of them failed, or they said nothing for too long."""
    told, began = Told(), time.monotonic()
    heard, failed = began, None
    with selectors.DefaultSelector() as selector:
        for host in hosts:
            selector.register(host.output, selectors.EVENT_READ, host)
        while selector.get_map():
            for key, _ in selector.select(0.2):
                lines = key.data.lines()
                if lines is None:
                    selector.unregister(key.fd)
                    continue
                for line in lines:
                    heard = time.monotonic()
                    told.lines.append(line)
                    tell(line)
            now = time.monotonic()
            failed = failed or (now if _failed(hosts) else None)
            if failed is not None and now - failed > _GRACE_S:
                break
            if told.done and now - heard > _LEAVE_S:
                return told
            told.stopped = _too_long(told, now - began, now - heard, limits)
            if told.stopped:
                return told
    if not told.done:
        told.stopped = _failure(hosts, told)
    return told


def _failed(hosts: Sequence[Host]) -> Host | None:
    return next((host for host in hosts if host.process.poll()), None)


def _failure(hosts: Sequence[Host], told: Told) -> str:
    """Who failed, where, and its words; "" where everybody ended well."""
    for host in hosts:
        host.gone(time.monotonic() + 1.0)
    failed = _failed(hosts)
    return f"the ranks on {failed.name} failed {told.at}: {failed.complaint()}" if failed else ""


def _too_long(told: Told, whole_s: float, silent_s: float, limits: Limits) -> str:
    silence = limits.silence_s if told.lines else limits.start_s
    if told.done:
        return ""
    if whole_s > limits.whole_s:
        return f"stopped after {limits.whole_s:.0f} s, {told.at}"
    if silent_s > silence:
        return f"stuck {told.at}: no answer for {silence:.0f} s"
    return ""
