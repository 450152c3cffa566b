"""News of a verdict to whoever was named by --notify: a webhook, a pager, a mailbox or a tracker of experiments.

A thread of its own sends it, bounded in time and tries. The address of a target is a secret: only its host is told.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.model.verdict import Diagnosis
from whichrank.run.monitoring import news
from whichrank.run.monitoring.news import News
from whichrank.run.monitoring.observers import Silent
from whichrank.run.monitoring.targets import PAUSES_S, Target, target_of

FAREWELL_S = 10.0
"""How long the end of the job waits for news that are under way; a tracker may ask for more."""
MOST = 20
"""In one run: a job that fails again and again is told by its restarts, not by a flood."""


@dataclass(slots=True)
class Notifier(Silent):
    """An observer that tells each incident once."""

    word: str
    """The target, as --notify has it."""
    job: str
    tell: Callable[[str], None] = lambda _text: None
    out: Path = Path()
    pauses_s: tuple[float, ...] = PAUSES_S
    link: str = ""
    target: Target = field(init=False)
    _told: set[str] = field(default_factory=set)
    _queue: queue.Queue[News | None] = field(default_factory=lambda: queue.Queue(MOST + 1))
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.target = target_of(self.word, self.pauses_s)

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        if diagnosis.verdict.category != "healthy":
            self._send(news.of_verdict(diagnosis.verdict, self.job, self.out, self.link))

    def on_alarm(self, level: str, why: str) -> None:
        if level == "gave up":
            self._send(news.of_the_end(why, self.job, self.out))
        elif level == "withdrawn":
            self._send(news.of_a_withdrawal(why, self.job, self.out, len(self._told)))

    def close(self) -> None:
        """Let what is under way arrive, for a while."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(max(FAREWELL_S, self.target.patience_s))

    def _send(self, told: News) -> None:
        if told.key in self._told or len(self._told) >= MOST:
            return
        self._told.add(told.key)
        self._queue.put(told)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (told := self._queue.get()) is not None:
            try:
                failure = self.target.deliver(told)
            except Exception as error:  # noqa: BLE001 - its text may hold the address
                failure = type(error).__name__
            if failure:
                self.tell(f"could not tell {self.target.name} of it: {failure}")
