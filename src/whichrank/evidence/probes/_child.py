"""Functions in children that can be abandoned: each has its time, and a child that does not end is left behind."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from whichrank.evidence.probes import Absent, Missing

MOST = 16 << 20


class Answer(NamedTuple):
    """What a child said, or why it said nothing."""

    value: Any
    why: str
    took_s: float
    timed_out: bool = False
    absent: bool = False


def bounded(work: Mapping[str, tuple[Callable[[], Any], float]]) -> dict[str, Answer]:
    """Run every function (name -> function, seconds) in a child of its own, all at the same time."""
    children = {name: _Child(function, limit) for name, (function, limit) in work.items()}
    answers: dict[str, Answer] = {}
    while waiting := {c.pipe: (n, c) for n, c in children.items() if n not in answers}:
        next_end = min(child.deadline for _, child in waiting.values())
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, next_end - time.monotonic()))
        for pipe in ready:
            name, child = waiting[pipe]
            if child.take():
                answers[name] = child.answer()
        now = time.monotonic()
        for name, child in waiting.values():
            if name not in answers and now >= child.deadline:
                answers[name] = child.abandon()
    return {name: answers[name] for name in work}


class _Child:
    def __init__(self, function: Callable[[], Any], limit_s: float) -> None:
        self.limit_s = limit_s
        self.began = time.monotonic()
        self.deadline = self.began + limit_s
        self.said = bytearray()
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _serve(function, theirs)
        os.close(theirs)

    def take(self) -> bool:
        """Read what there is; True at its end."""
        piece = os.read(self.pipe, 1 << 16)
        self.said += piece
        return not piece or len(self.said) > MOST

    def answer(self) -> Answer:
        took = time.monotonic() - self.began
        os.close(self.pipe)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        try:
            document = json.loads(self.said)
        except ValueError:
            return Answer(None, "the probe crashed before it could answer", took)
        return Answer(document.get("value"), document.get("why", ""), took, absent=bool(document.get("absent")))

    def abandon(self) -> Answer:
        """Told to end, and left: in a wedged driver it can't."""
        os.close(self.pipe)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, os.WNOHANG)
        return Answer(None, f"timed out after {self.limit_s:.0f} s", time.monotonic() - self.began, timed_out=True)


def _serve(function: Callable[[], Any], pipe: int) -> None:
    """The life of a child: one answer, and out, without the parent's buffers and handlers."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        try:
            document: dict[str, Any] = {"value": function()}
        except Missing as error:
            document = {"why": str(error), "absent": isinstance(error, Absent)}
        except Exception as error:  # noqa: BLE001 - a defect of one probe must not cost the others their answer
            document = {"why": f"the probe failed: {type(error).__name__}: {error}"[:300]}
        with os.fdopen(pipe, "wb") as stream:
            stream.write(json.dumps(document).encode())
    finally:
        os._exit(0)
