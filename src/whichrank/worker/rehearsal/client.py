"""A rank's line to the referee: post a call, wait for it, sleep, tell what happened."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, ClassVar

from whichrank.worker.rehearsal import wire

Place = tuple[str, int, str]
DEPTH = 12


class Settings:
    """Where the referee listens, and which files are the user's own."""

    address = ""
    roots: tuple[str, ...] = ()
    libraries: tuple[str, ...] = (str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix, "<")
    known: ClassVar[dict[str, bool]] = {}

    @classmethod
    def owns(cls, file: str) -> bool:
        """Whether a file is part of the user's program."""
        if file not in cls.known:
            library = file.startswith(cls.libraries) or "site-packages" in file
            cls.known[file] = file.startswith(cls.roots) and not library
        return cls.known[file]


class Line:
    """One connection of one process. Threads may share it."""

    def __init__(self, address: str, hello: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(address)
        self.sending = threading.Lock()
        self.turn = threading.Condition()
        self.reading = False
        self.done: dict[int, tuple[dict[str, Any], bytearray]] = {}
        self.abandoned: set[int] = set()
        self.numbers = itertools.count(1)
        self.offset = 0.0
        self.debt = 0.0
        self.tell({"t": "hello", "pid": self.pid, **hello})

    def tell(self, header: dict[str, Any], payload: Sequence[memoryview] = ()) -> None:
        with self.sending:
            wire.send(self.socket, header, payload)

    def post(self, header: dict[str, Any], payload: Sequence[memoryview] = ()) -> int:
        """Hand in a call and go on; returns its number."""
        number = next(self.numbers)
        self.tell({**header, "id": number}, payload)
        return number

    def ask(self, header: dict[str, Any], payload: Sequence[memoryview] = ()) -> tuple[dict[str, Any], bytearray]:
        """Hand in a call and wait for its answer."""
        return self.wait(self.post({**header, **self.blocking()}, payload), told=True)

    def wait(self, number: int, *, told: bool = False) -> tuple[dict[str, Any], bytearray]:
        self.debt = 0.0
        with self.turn:
            known = number in self.done
        if not known and not told:
            self.tell({"t": "wait", "id": number, "at": stack(), **self.blocking()})
        with self.turn:
            while number not in self.done:
                if self.reading:
                    self.turn.wait()
                    continue
                self.reading = True
                self.turn.release()
                try:
                    header, payload = wire.receive(self.socket)
                except (EOFError, OSError):
                    os._exit(0)  # the rehearsal is over
                finally:
                    self.turn.acquire()
                    self.reading = False
                self.offset = max(self.offset, header.get("off", 0.0))
                self.done[header["id"]] = (header, payload)
                self.turn.notify_all()
            return self.done.pop(number)

    def is_done(self, number: int) -> bool:
        with self.turn:
            return number in self.done

    def blocking(self) -> dict[str, Any]:
        main = threading.current_thread() is threading.main_thread()
        return {"b": 1, "main": main, "threads": threading.active_count() - 1, "off": self.offset}

    def sleep(self, seconds: float) -> None:
        """Until everybody else waits too: then the clock jumps."""
        self.ask({"t": "sleep", "s": seconds, "at": stack()})


_line: Line | None = None
rank: int | None = None
rank_pid = 0
"""The process that was started as a rank; a child of it that joins is a rank that the script started itself."""


def connect(given: int | None = None) -> Line:
    """The line of this process; made when it is first needed, and anew in a forked child."""
    global _line  # noqa: PLW0603 - one per process
    if _line is None or _line.pid != os.getpid():
        _line = Line(Settings.address, {"rank": given, "parent": os.getppid()})
    return _line


def current() -> Line | None:
    """The line of this process if it has one: helpers of a rank, as data workers are, have none."""
    return _line if _line is not None and _line.pid == os.getpid() else None


def note(kind: str, **facts: Any) -> None:
    """Tell the referee something that needs no answer."""
    line = current()
    if line is not None:
        line.tell({"t": "note", "kind": kind, **facts})


def stack(frame: FrameType | None = None) -> list[Place]:
    """The user's own frames, innermost first; before them the library call that they made."""
    found: list[Place] = []
    below: FrameType | None = None
    at: FrameType | None = frame or sys._getframe(1)
    while at is not None and len(found) < DEPTH:
        name = at.f_code.co_filename
        if Settings.owns(name):
            if below is not None and not found:
                found.append(("", 0, called(below)))
            found.append((name, at.f_lineno, at.f_code.co_name))
        elif not name.endswith("c10d_logger.py"):
            below = at
        at = at.f_back
    return found


def called(frame: FrameType) -> str:
    """What a library's function is called, with its module; a wrapper is called what it wraps."""
    code = frame.f_code
    if code.co_freevars and code.co_flags & CO_VARARGS and code.co_flags & CO_VARKEYWORDS:
        held = (frame.f_locals.get(name) for name in code.co_freevars)
        wrapped = next((one for one in held if isinstance(one, FunctionType)), None)
        if wrapped is not None:
            return f"{wrapped.__module__}.{wrapped.__qualname__}"
    module = frame.f_globals.get("__name__", "")
    return f"{module}.{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)}"
