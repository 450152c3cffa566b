"""Ends that the interpreter's hooks don't see: children of `multiprocessing`, and processes that end without a word.

Copied into the job beside `startup.py`: standard library only, and the process ends as it was told to, whatever happens
here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

VARIABLE = "WHICHRANK_EXITS"
COUNTS = "counts"
"""Its value for the attempts that only note how far they came."""
_MOST = 64


class SilentExit(Exception):  # noqa: N818 - it is what the report says
    """Stands for the call that ended the process."""


def trace(tell: Callable[[BaseException], None], joined: Callable[[], bool]) -> None:
    """Have `tell` called with what ends this process, if it ends while it has a process group.

    Calls of `sys.exit` and `os._exit` leave a traceback, as an exception would. Only in attempts that are run with more
    evidence (`run --escalate`); in the ones before, such a call notes how far the rank came and nothing else, so that
    two failures can be compared.
    """
    leave, leave_at_once = sys.exit, os._exit

    def exit_(status: Any = None, /) -> Any:
        if status not in (None, 0) and not isinstance(status, str):  # a text is printed by the interpreter
            _note(tell, joined, f"sys.exit({status!r:.60})")
        leave(status)

    def exit_at_once(status: int) -> Any:
        _note(tell, joined, f"os._exit({status!r:.60})")
        leave_at_once(status)

    sys.exit = exit_
    os._exit = exit_at_once


def _note(tell: Callable[[BaseException], None], joined: Callable[[], bool], call: str) -> None:
    try:
        if joined():
            tell(_handled() or _called(call))
    except Exception:  # noqa: BLE001, S110 - the process ends as it was told to
        pass


def _handled() -> BaseException | None:
    """The exception that is being handled where the process is ended: that is why."""
    error = sys.exc_info()[1]
    return error if error is not None and not isinstance(error, (SystemExit, GeneratorExit)) else None


def _called(call: str) -> SilentExit:
    """An exception from the line that made the call, with the way there as its traceback."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - of the call itself
    trace: TracebackType | None = None
    for _ in range(_MOST):
        if frame is None:
            break
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return SilentExit(f"{call} ended this process without a message").with_traceback(trace)


def hear_the_end(tell: Callable[[BaseException], None]) -> bool:
    """Have `tell` called with the exception that ends this child of `multiprocessing`; False where it is none."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if util is None or getattr(process, "_parent_process", None) is None:
        return False
    util.Finalize(None, _leave, args=(tell,), exitpriority=100)
    return True


def _leave(tell: Callable[[BaseException], None]) -> None:
    error = sys.exc_info()[1]
    # torch's `spawn` writes down what the function raised, and leaves by an exit code.
    raised = (error.__context__ if error.code else None) if isinstance(error, SystemExit) else error
    if raised is not None:
        tell(raised)
