"""The counts and flags that the training code holds where it stands: numbers, truth values, lengths.

Ranks that are to take the same path hold the same ones; where they don't, they show who took another. No text and no
number of a tensor is kept, so nothing private leaves the job, and no code of the job is called. Where an exception says
that a value is not finite, which ones are is told too: behind a reduction all ranks have it, before it one.

Copied into the job beside `startup.py`: standard library only.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from whichrank.worker.main_thread import FRAMES, held_by, is_training_code, thread_that_trains

MARK = "whichrank_variables"
MOST = 60
"""Values of one frame."""
_DEPTH = 12
"""Frames of the training code."""
_NAME = 60
_LARGEST = 1 << 53
_SMALL = 1 << 20
"""Elements of a tensor that is looked at."""
_LIMIT_S = 1.0
_NOT_FINITE = re.compile(
    r"(?<![a-z])(?:nans?|infs?|infinity|infinite)(?![a-z])|finite|FloatingPoint|diverge", re.IGNORECASE
)
_COUNTED = (list, tuple, dict, set, frozenset)


def own(rank: int) -> str:
    """The frames of the training code with what they hold, the innermost first, as JSON; "" where there is none."""
    frame, frames = thread_that_trains(), []
    for _ in range(FRAMES):
        if frame is None:
            break
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _told(rank, frames, _values)


def at_failure(rank: int, error: BaseException) -> str:
    """The same of the frames in which an exception was raised."""
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    not_finite = _NOT_FINITE.search(f"{type(error).__name__}: {error}"[:400])
    return _told(rank, frames[::-1], _Finite().values if not_finite else _values)


def _told(
    rank: int,
    frames: list[tuple[types.FrameType, int]],
    values: Callable[[types.FrameType], Iterator[tuple[str, int | bool]]],
) -> str:
    own = [(frame, line) for frame, line in frames if is_training_code(frame.f_code.co_filename)][:_DEPTH]
    told = [[f.f_code.co_filename, line, f.f_code.co_name, dict(islice(values(f), MOST))] for f, line in own]
    return json.dumps({MARK: 1, "rank": rank, "frames": told}) if told else ""


def _values(frame: types.FrameType) -> Iterator[tuple[str, int | bool]]:
    """Those of the names of this frame, then those of the objects that it holds."""
    held = list(held_by(frame).items())
    for name, value in held:
        yield from _plain(name, value)
    for name, value in held:
        for attribute, part in _attributes(value):
            if type(part) not in _COUNTED or not str(attribute).startswith("_"):  # a module keeps its tables there
                yield from _plain(f"{name}.{attribute}", part)


def _plain(name: str, value: object) -> Iterator[tuple[str, int | bool]]:
    if len(name) > _NAME or name == "_" or name.startswith("__"):
        return
    if type(value) is bool or (type(value) is int and -_LARGEST < value < _LARGEST):
        yield name, value
    elif type(value) in _COUNTED:
        yield f"len({name})", len(value)  # type: ignore[arg-type]


class _Finite:
    """`finite(loss)` for numbers and small tensors, before all other values."""

    def __init__(self) -> None:
        self._tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        self._held_up = False

    def values(self, frame: types.FrameType) -> Iterator[tuple[str, int | bool]]:
        for name, value in held_by(frame).items():
            if type(value) is float:
                yield f"finite({name})", math.isfinite(value)
            elif type(value) is self._tensor and (finite := self._ask(value)) is not None:
                yield f"finite({name})", finite
        yield from _values(frame)

    def _ask(self, value: object) -> bool | None:
        """In a thread of its own: a GPU that still waits for other ranks would hold up the end of the process."""
        if self._held_up:
            return None
        found: list[bool] = []
        thread = threading.Thread(target=_look, args=(value, found), name="whichrank-finite", daemon=True)
        thread.start()
        thread.join(_LIMIT_S)
        self._held_up = thread.is_alive()
        return found[0] if found else None


def _look(value: Any, found: list[bool]) -> None:
    with suppress(Exception):
        if value.is_floating_point() and value.numel() <= _SMALL:
            found.append(bool(value.detach().isfinite().all()))


def _attributes(value: object) -> list[tuple[object, object]]:
    """Of an object whose class the training code defines, or that argparse made; no property is run."""
    kind = type(value)
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return []
    defined = sys.modules.get(getattr(kind, "__module__", ""))
    file = getattr(defined, "__file__", None) or ""
    if kind.__name__ != "Namespace" and not (type(file) is str and file and is_training_code(file)):
        return []
    try:
        inner = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    return list(inner.items()) if type(inner) is dict else []
