"""What a rank tells of the counts and flags that its training code holds."""

from __future__ import annotations

import json
import sys
import threading
import time
import types
import weakref
from typing import Any

import pytest

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


def failed(words: str, **held: object) -> dict[str, Any]:
    """What a rank tells of a function that held these values and raised an exception with these words."""
    script = f"def step({', '.join(held)}):\n    raise ValueError({words!r})\n"
    space: dict[str, Any] = {}
    exec(compile(script, FILE, "exec"), space)
    try:
        space["step"](**held)
    except ValueError as error:
        return json.loads(variables.at_failure(1, error))["frames"][0][3]
    raise AssertionError("nothing was raised")


def test_which_values_are_finite_is_told_where_the_exception_speaks_of_it() -> None:
    torch = pytest.importorskip("torch")
    bad, good = torch.tensor([1.0, float("nan")]), torch.ones(2)
    held = {"loss": bad, "norm": good, "rate": float("inf"), "labels": torch.ones(2, dtype=torch.long), "step": 7}
    told = failed("loss is nan at step 7", **held)
    assert told == {"finite(loss)": False, "finite(norm)": True, "finite(rate)": False, "step": 7}
    assert failed("the batch is empty", **held) == {"step": 7}
    assert failed("cannot find nanotron.yaml", **held) == {"step": 7}


def test_a_tensor_that_does_not_answer_holds_up_nothing(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    never = threading.Event()
    monkeypatch.setattr(variables, "_LIMIT_S", 0.1)
    monkeypatch.setattr(variables, "_look", lambda value, found: never.wait(20))
    begun = time.monotonic()
    assert failed("loss is nan", a=torch.ones(1), b=torch.ones(1), c=torch.ones(1)) == {}
    assert time.monotonic() - begun < 2.0
    never.set()


def test_nothing_of_the_job_is_kept_alive() -> None:
    """A batch that was looked at once is gone when the loop has another one."""

    class Batch:
        """Stands for a tensor."""

    looked, freed = threading.Event(), threading.Event()
    ready, seen = threading.Event(), []

    def step() -> None:
        batch = Batch()
        seen.append(weakref.ref(batch))
        ready.set()
        looked.wait()
        batch = None  # the next one
        freed.set()
        time.sleep(0.2)
        del batch

    thread = threading.Thread(target=step)
    thread.start()
    ready.wait()
    MARKS.thread = thread.ident
    try:
        variables.own(0)
        looked.set()
        freed.wait()
        assert seen[0]() is None
    finally:
        MARKS.thread = None
        looked.set()
        thread.join()
