"""What a rank tells of the counts and flags that its training code holds."""

from __future__ import annotations

import json
import sys
import threading
import types
from typing import Any

from whichrank.worker import variables
from whichrank.worker.marks import MARKS

FILE = "/home/me/train.py"
SCRIPT = """
class Trainer:
    def __init__(self):
        self.skipped, self._left, self.token = 2, 3, "hf_secret"
        self._tables = {"a": 1}

    @property
    def steps(self):
        raise RuntimeError("code of the job was called")

    def fit(self, batches, ready, go):
        done, rate, name, _ = False, 0.1, "s3://bucket", 9
        ready.set()
        go.wait()
"""


def told(script: str = SCRIPT) -> list[list[Any]]:
    """The frames of a thread that runs a script, by the marks that a trainer makes."""
    space: dict[str, Any] = {"__name__": "job"}
    exec(compile(script, FILE, "exec"), space)
    ready, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: space["Trainer"]().fit([1, 2, 3], ready, go))
    thread.start()
    ready.wait()
    MARKS.thread = thread.ident
    try:
        return json.loads(variables.own(3))["frames"]
    finally:
        MARKS.thread = None
        go.set()
        thread.join()


def test_counts_flags_and_lengths_and_nothing_else(monkeypatch) -> None:
    job = types.ModuleType("job")
    job.__file__ = FILE
    monkeypatch.setitem(sys.modules, "job", job)
    file, _, function, values = next(frame for frame in told() if frame[0] == FILE)
    assert (file, function) == (FILE, "fit")
    assert values == {"done": False, "len(batches)": 3, "self.skipped": 2, "self._left": 3}


def test_what_libraries_make_is_not_looked_into() -> None:
    values = next(frame for frame in told() if frame[0] == FILE)[3]
    assert "self.skipped" not in values, "the class is of a module that is not the training code"
