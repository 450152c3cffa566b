"""A watcher that has no descriptors left for a while goes on when there are some again."""

from __future__ import annotations

import errno
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from whichrank.run.watch.watcher import Watcher


def watcher(looks: list[Exception | None]) -> tuple[Any, list[str]]:
    told: list[str] = []
    stop = threading.Event()

    def look(_now_s: float) -> None:
        if (error := looks.pop(0)) is not None:
            raise error

    journal = SimpleNamespace(complain=told.append)
    record = SimpleNamespace(journal=journal, alarm=SimpleNamespace(excuse=lambda _now_s: None))
    return SimpleNamespace(pause=lambda: None, look=look, record=record, _stop=stop), told


def test_no_descriptors_for_a_look() -> None:
    seen, told = watcher([OSError(errno.EMFILE, "Too many open files"), None])
    seen._stop.set()  # nothing is waited for
    last = Watcher._next_look(seen, 0.0)
    assert Watcher._next_look(seen, last) >= last
    assert len(told) == 1
    assert "Too many open files" in told[0]


def test_another_error_is_not_hidden() -> None:
    seen, _ = watcher([OSError(errno.EIO, "Input/output error")])
    with pytest.raises(OSError, match="Input"):
        Watcher._next_look(seen, 0.0)
