"""Something that may take long, done beside the rest and abandoned when its time is up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Begins at once. A thread that never returns keeps nobody from ending."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._found: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._found.append(call())
        except Exception as error:  # noqa: BLE001 - told by the one who asks for the result
            self._error = error

    def result(self, limit_s: float) -> T:
        """What came of it; its own error, or a TimeoutError."""
        self._thread.join(limit_s)
        if self._error is not None:
            raise self._error
        if not self._found:
            raise TimeoutError(f"no answer within {limit_s:.0f} s")
        return self._found[0]
