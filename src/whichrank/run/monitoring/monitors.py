"""Everybody who is told of a watched job, as the command line asked for them."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.flows.history import recurrence as history
from whichrank.model.errors import WhichrankError
from whichrank.model.files import replace_text
from whichrank.model.verdict import Diagnosis
from whichrank.run.monitoring.exporter import Exporter, address
from whichrank.run.monitoring.exposition import Family, render
from whichrank.run.monitoring.metrics import families
from whichrank.run.monitoring.observers import Audience, Observer, Silent
from whichrank.run.monitoring.tally import Tally
from whichrank.run.token import load_token
from whichrank.run.watch.launch import FORWARDED

if TYPE_CHECKING:
    from whichrank.run.monitoring.notify import Notifier
    from whichrank.run.monitoring.otlp import Pusher
    from whichrank.run.web.live import LivePage

LAST_PAGE = "metrics.prom"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asked for."""

    metrics: str = ""
    token_file: Path | None = None
    notify: tuple[str, ...] = ()
    otlp: str = ""
    history: bool = True
    web: str = ""


def job_name(command: Sequence[str]) -> str:
    """The script of a command, or else its program, without the folders."""
    scripts = [word for word in command if word.endswith(".py")]
    return Path(scripts[0] if scripts else command[0]).name if command else ""


@dataclass(slots=True)
class Chronicler(Silent):
    """Remembers every verdict, and says when it is not the first of its kind."""

    job: str
    tell: Callable[[str], None]
    out: Path = Path()
    run: str = field(default_factory=lambda: str(time.time_ns()))

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        try:
            told = history.remember(history.entry(diagnosis, run=self.run, job=self.job, out=str(self.out)))
        except WhichrankError as error:
            told = [f"the verdict is not in the history: {error.message}"]
        for line in told:
            self.tell(line)


class Monitors(Audience):
    """Made before the job, so that what can't work is said before it starts; closed when it has ended for good."""

    def __init__(self, wishes: Wishes, job: str, tell: Callable[[str], None]) -> None:
        super().__init__([], tell)
        self._out: Path | None = None
        self._tally = Tally(job)
        self._exporter: Exporter | None = None
        self._pusher: Pusher | None = None
        self._notifiers: list[Notifier] = []
        self._chronicler = Chronicler(job, tell) if wishes.history else None
        if wishes.notify:
            from whichrank.run.monitoring.notify import Notifier

            self._notifiers = [Notifier(word, job, tell) for word in wishes.notify]
        if wishes.otlp:
            from whichrank.run.monitoring.otlp import Pusher

            self._pusher = Pusher(wishes.otlp, job, self._families, tell)
        if wishes.metrics:
            self._exporter = Exporter(address(wishes.metrics), self._page, load_token(wishes.token_file))
        self._page_server: LivePage | None = None
        if wishes.web:
            from whichrank.run.web.live import LivePage

            self._page_server = LivePage(wishes.web, wishes.token_file, job)
        wanted: tuple[Observer | None, ...] = (
            self._tally if wishes.metrics or wishes.otlp else None, *self._notifiers, self._chronicler,
            self._page_server,
        )  # fmt: skip
        self.observers = [observer for observer in wanted if observer is not None]

    @property
    def places(self) -> dict[str, str]:
        found = {"metrics": self._exporter.url} if self._exporter else {}
        if self._page_server is not None:  # without its token: run.json may be shared
            found["web"] = self._page_server.server.url.partition("?")[0]
        return found

    def begin(self, out: Path) -> None:
        """Threads start with the first attempt, deaf to the signals that are meant for the job."""
        first, self._out = self._out is None, out
        for notifier in self._notifiers:
            notifier.out, notifier.link = out, self.places.get("web", "")
        if self._chronicler is not None:
            self._chronicler.out = out
        if self._page_server is not None:
            self._page_server.begin(out)
        if not first:
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:
            page = self._page_server.server if self._page_server is not None else None
            for server in (self._exporter, self._pusher, page):
                if server is not None:
                    server.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._exporter is not None:
            self.tell(f"metrics are at {self._exporter.url}")
            if self._exporter.public and self._exporter.token is None:
                self.tell("other hosts can read them without a token (WHICHRANK_TOKEN or --token-file)")

        if self._page_server is not None:
            self.tell(f"the job as a page: {self._page_server.server.url}")

    def close(self) -> None:
        """The last values go out, and into a file for those who collect text files."""
        self._tally.end()
        if self._page_server is not None:
            self._page_server.close()
        if self._exporter is not None:
            self._exporter.close()
            if self._out is not None:
                with contextlib.suppress(OSError):
                    replace_text(self._out / LAST_PAGE, self._page())
        for sender in (self._pusher, *self._notifiers):
            if sender is not None:
                sender.close()

    def _page(self) -> str:
        return render(self._families())

    def _families(self) -> list[Family]:
        return families(self._tally, time.monotonic(), time.time_ns())
