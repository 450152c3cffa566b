"""Who hears what a watcher sees: metrics, notifications, the history. None of them can stop the watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whichrank.model.verdict import Diagnosis
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.stragglers import Straggler

if TYPE_CHECKING:
    from whichrank.run.watch.guarding import GuardState


class Observer(Protocol):
    """Called from the thread of the watcher: what takes long belongs into a thread of the observer's own."""

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:
        """The ranks of the newest attempt were looked at; the time is monotonic."""

    def on_alarm(self, level: str, why: str) -> None:
        """ "suspect", "confirmed", "crash", "wrong" (the guard), "withdrawn" when a hang has ended by itself, or "gave
        up" when no restart is tried any more."""

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        """The evidence was judged."""

    def on_straggler(self, found: Straggler) -> None:
        """A rank holds the others up; told at every look while it does."""


class Silent:
    """Hears everything and does nothing: to build on where not every call matters."""

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:
        """Nothing."""

    def on_alarm(self, level: str, why: str) -> None:
        """Nothing."""

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        """Nothing."""

    def on_straggler(self, found: Straggler) -> None:
        """Nothing."""


@dataclass(slots=True)
class Audience:
    """All observers as one; whoever fails is told of and not called again."""

    observers: list[Observer] = field(default_factory=list)
    tell: Callable[[str], None] = lambda _text: None

    @property
    def places(self) -> dict[str, str]:
        """What run.json says about where to look."""
        return {}

    def begin(self, out: Path) -> None:
        """The job has started, and its results go to this folder."""

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:
        self._all(lambda observer: observer.on_look(now_s, level, ranks))

    def on_alarm(self, level: str, why: str) -> None:
        self._all(lambda observer: observer.on_alarm(level, why))

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        self._all(lambda observer: observer.on_verdict(diagnosis))

    def on_straggler(self, found: Straggler) -> None:
        self._all(lambda observer: observer.on_straggler(found))

    def on_guard(self, state: GuardState) -> None:
        """How far the guards of the ranks have compared; told to those who keep count."""
        for observer in self.observers:
            hear = getattr(observer, "on_guard", None)
            if hear is not None:
                hear(state)

    def _all(self, call: Callable[[Observer], None]) -> None:
        for observer in tuple(self.observers):
            try:
                call(observer)
            except Exception as error:  # noqa: BLE001 - the watch is worth more than its observers
                self.observers.remove(observer)
                name = type(observer).__name__.lower()
                self.tell(f"{name} stopped after an error of its own ({type(error).__name__}: {error})")
