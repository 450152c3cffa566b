"""The counts and flags that the training code holds where it stands: numbers, truth values, lengths.

Ranks that are to take the same path hold the same ones; where they don't, they show who took another. No text and no
tensor is read, so nothing private leaves the job, and no code of the job is called.

Copied into the job beside `startup.py`: standard library only.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from itertools import islice

from whichrank.worker.main_thread import FRAMES, is_training_code, thread_that_trains

MARK = "whichrank_variables"
MOST = 60
"""Values of one frame."""
_DEPTH = 12
"""Frames of the training code."""
_NAME = 60
_LARGEST = 1 << 53
_COUNTED = (list, tuple, dict, set, frozenset)


def own(rank: int) -> str:
    """The frames of the training code with what they hold, the innermost first, as JSON; "" where there is none."""
    frame = thread_that_trains()
    told: list[list[object]] = []
    for _ in range(FRAMES):
        if frame is None or len(told) == _DEPTH:
            break
        code = frame.f_code
        if is_training_code(code.co_filename):
            values = dict(islice(_values(frame), MOST))
            told.append([code.co_filename, frame.f_lineno, code.co_name, values])
        frame = frame.f_back
    return json.dumps({MARK: 1, "rank": rank, "frames": told}) if told else ""


def _values(frame: types.FrameType) -> Iterator[tuple[str, int | bool]]:
    """Those of the names of this frame, then those of the objects that it holds."""
    held = list(frame.f_locals.items())
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


def _attributes(value: object) -> list[tuple[object, object]]:
    """Of an object whose class the training code defines, or that argparse made; no property is run."""
    kind = type(value)
    if isinstance(value, type | types.ModuleType | types.FunctionType):
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
