"""Real jobs take long and mostly wait: begun together, awaited one by one, and done again for a failed test."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Generic, TypeVar

import pytest

T = TypeVar("T")

_reruns = 0
_is_rerun = False


def a_test_begins(item: pytest.Item) -> None:
    """To be told before every attempt of every test."""
    global _reruns, _is_rerun  # noqa: PLW0603 - there is one test at a time
    _is_rerun = getattr(item, "execution_count", 1) > 1
    _reruns += _is_rerun


class Together(Mapping[str, T], Generic[T]):
    """By name what became of each; a test that runs again gets what was done again, alone in a new folder."""

    def __init__(
        self, do: Callable[[str, Path], T], names: Iterable[str], at_once: int, request: pytest.FixtureRequest
    ) -> None:
        self._do = do
        self._folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        self._folders.getbasetemp()  # made once, before the threads ask for it
        self._pool = ThreadPoolExecutor(at_once)
        self._names = list(names)
        self._begun: dict[str, Future[T]] = {}
        asked = _asked_for(request, set(self._names))
        for name in self._names:
            if name in asked:
                self._begin(name)
        self._redone: dict[str, int] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._begun:
            self._begin(name)
        if _is_rerun and self._redone.get(name) != _reruns:
            self._redone[name] = _reruns
            self._begun[name].exception()  # it may still be going on
            self._begun[name] = again = Future()
            try:
                again.set_result(self._once(name))
            except Exception as error:  # noqa: BLE001 - told to whoever asks, as that of the first time
                again.set_exception(error)
        return self._begun[name].result()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def close(self) -> None:
        """Wait for those that go on; what has not begun is not wanted."""
        self._pool.shutdown(cancel_futures=True)

    def _begin(self, name: str) -> None:
        self._begun[name] = self._pool.submit(self._once, name)

    def _once(self, name: str) -> T:
        return self._do(name, self._folders.mktemp(name))


def _asked_for(request: pytest.FixtureRequest, names: set[str]) -> set[str]:
    """The names that the chosen tests of this file get as a parameter, or else use; others begin when asked for."""
    found: set[str] = set()
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            given = {value for value in _parameters(item) if isinstance(value, str)} & names
            found |= given or (_used(item.function.__code__) & names)
    return found


def _used(code: CodeType) -> set[str]:
    """Texts and functions that a test mentions; not what it calls on others, as `os.kill`."""
    functions = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return functions | {constant for constant in code.co_consts if isinstance(constant, str)}


def _parameters(item: pytest.Function) -> Iterable[object]:
    callspec = getattr(item, "callspec", None)
    return callspec.params.values() if callspec is not None else ()
