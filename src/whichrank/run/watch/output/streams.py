"""The job's stdout and stderr: where they went before, byte for byte, and into files that evidence is taken from.

A stream that goes to a file is left alone: it can be read there. A terminal is replaced by another of the same size,
a pipe by another pipe, and `relay.py` passes on what is written. The job keeps its stdin, its controlling terminal and
its process group: keys reach it as before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import socket
import stat
import subprocess
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.run.watch.output import relay

LIMIT = 8 << 20
"""Bytes of a copy before it becomes the older one; two of them are kept."""
ANSWER_S = 10.0
NULL = os.makedev(1, 3)


@dataclass(slots=True)
class Streams:
    """What the job gets for its descriptors 1 and 2; None: as this process has it."""

    stdout: int | None = None
    stderr: int | None = None
    copies: dict[str, Path] = field(default_factory=dict)
    """Name -> the file with what was written."""
    terminal: bool = False
    _control: socket.socket | None = None
    _relay: subprocess.Popen[bytes] | None = None
    _ends: list[int] = field(default_factory=list)
    """The job's ends, to be closed here once it has them."""

    def handed_over(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends.clear()

    def drain(self) -> None:
        """Wait until all that has been written so far is passed on."""
        self._ask(b"d")

    def resize(self) -> None:
        """The window has another size."""
        if self.terminal:
            self._ask(b"w")

    def abandon(self) -> None:
        """The job was never started: the relay ends, and writes nothing any more."""
        self.close()
        if self._relay is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._relay.wait(ANSWER_S)

    def close(self) -> None:
        """The relay goes on alone while somebody writes."""
        self.handed_over()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._relay is not None:
            self._relay.poll()

    def _ask(self, what: bytes) -> None:
        if self._control is None:
            return
        with contextlib.suppress(OSError):
            self._control.sendall(what)
            if select.select([self._control], [], [], ANSWER_S)[0]:
                self._control.recv(64)


def open_streams(folder: Path) -> Streams:
    """The streams of a job whose private folder this is."""
    streams, sources, known = Streams(), [], {}
    for number, name in ((1, "stdout"), (2, "stderr")):
        kind = _kind(number)
        if not kind:
            continue
        status = os.fstat(number)
        same = (status.st_dev, status.st_ino, status.st_rdev)
        if same not in known:
            try:
                source, end = _terminal(number) if kind == "terminal" else os.pipe()
            except OSError:  # no descriptors, no terminals left: the job gets the stream itself
                continue
            streams.terminal = streams.terminal or kind == "terminal"
            streams.copies[name] = folder / f"output.{name}"
            streams._ends.append(end)  # noqa: SLF001
            sources.append((source, number, streams.copies[name]))
            known[same] = end
        setattr(streams, name, known[same])
    if sources:
        try:
            _start(streams, sources)
        except OSError:
            streams.handed_over()
            streams = Streams()
        for source, _, _ in sources:
            os.close(source)
    return streams


def _kind(number: int) -> str:
    """ "terminal", "pipe", or "" for what the job is better given itself."""
    try:
        status = os.fstat(number)
        closed = fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    except OSError:
        return ""
    if closed:  # only a placeholder of this process
        return ""
    if stat.S_ISCHR(status.st_mode):
        return "terminal" if os.isatty(number) else "pipe" if status.st_rdev == NULL else ""
    return "pipe" if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode) else ""


def _terminal(like: int) -> tuple[int, int]:
    """Another terminal like this one, which changes nothing of what is written to it."""
    source, end = pty.openpty()
    try:
        settings = termios.tcgetattr(like)
        settings[1] &= ~termios.OPOST  # the real one does that
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(end, termios.TCSANOW, settings)
        fcntl.ioctl(end, termios.TIOCSWINSZ, fcntl.ioctl(like, termios.TIOCGWINSZ, bytes(8)))
    except termios.error as error:
        os.close(source)
        os.close(end)
        raise OSError(*error.args) from error
    return source, end


def _start(streams: Streams, sources: list[tuple[int, int, Path]]) -> None:
    mine, its = socket.socketpair()
    targets = [os.dup(number) for _, number, _ in sources]
    words = [f"{source}:{target}:{LIMIT}:{path}" for (source, _, path), target in zip(sources, targets, strict=True)]
    try:
        # By its text, and with a session of its own: neither a key nor `pkill -f whichrank` cuts the job's output off.
        program = [sys.executable, "-I", "-S", "-c", "import sys; exec(sys.stdin.read())", str(its.fileno()), *words]
        child = subprocess.Popen(  # noqa: S603 - our own program
            program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(its.fileno(), *targets, *(source for source, _, _ in sources)), start_new_session=True,
        )  # fmt: skip
        assert child.stdin is not None  # noqa: S101 - for the type checker
        with child.stdin:
            child.stdin.write(Path(relay.__file__).read_bytes())
    except OSError:
        mine.close()
        raise
    finally:
        its.close()
        for target in targets:
            os.close(target)
    mine.set_inheritable(False)
    streams._control, streams._relay = mine, child  # noqa: SLF001
