"""A call that waits for a GPU is told by its instruction."""

from __future__ import annotations

import functools
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from whichrank.worker.synchronising import waits_for_gpu

LONG_S = 0.6
loss = SimpleNamespace(item=functools.partial(time.sleep, LONG_S), detach=functools.partial(time.sleep, LONG_S))
"""Functions in C that hand over the interpreter while they wait, as torch's do."""


def waits() -> float:
    return loss.item() or 0.0


def waits_in_a_row() -> list[float]:
    return [loss.item() for _ in range(1)]


def does_something_else() -> object:
    loss.detach()
    return loss.item


def computes() -> object:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        sum(range(1000))
    return loss.item


@pytest.mark.parametrize(
    ("function", "expected"),
    [(waits, True), (waits_in_a_row, True), (does_something_else, False), (computes, False)],
)
def test_a_thread_in_such_a_call(function, expected):
    thread = threading.Thread(target=function)
    thread.start()
    seen = []
    for _ in range(3):
        time.sleep(LONG_S / 6)
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None and frame.f_code.co_filename == __file__:
            seen.append(waits_for_gpu(frame))
    thread.join()
    assert set(seen) == {expected}
