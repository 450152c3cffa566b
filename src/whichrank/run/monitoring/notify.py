"""News of a verdict to a webhook: Slack-compatible, with the verdict beside it for programs.

A thread of its own sends it, bounded in time and tries. The address of a webhook is a secret: it is never told,
only its host is.
"""

from __future__ import annotations

import json
import queue
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from whichrank.facts.redaction.redactor import without_secrets
from whichrank.model.errors import UsageError
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis
from whichrank.run.monitoring.listeners import Silent

VARIABLE = "WHICHRANK_WEBHOOK"
ANSWER_S = 5.0
PAUSES_S = (1.0, 2.0, 4.0)
"""Between tries; each is stretched by up to a half, so that many jobs don't come back at once."""
FAREWELL_S = 10.0
"""How long the end of the job waits for news that are under way."""
MOST = 20
"""In one run: a job that fails again and again is told by its restarts, not by a flood."""
LONGEST = 2000
_AGAIN = (408, 425, 429)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the news to an address that nobody gave."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(slots=True)
class Notifier(Silent):
    """A listener that tells each incident once."""

    url: str
    job: str
    tell: Callable[[str], None] = lambda _text: None
    out: Path = Path()
    pauses_s: tuple[float, ...] = PAUSES_S
    _told: set[tuple[object, ...]] = field(default_factory=set)
    _queue: queue.Queue[dict[str, Any] | None] = field(default_factory=lambda: queue.Queue(MOST + 1))
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.url.isprintable() or " " in self.url:
            raise UsageError("the address of the webhook is none", "Give --notify an address with http:// or https://.")
        if parts.username or parts.password:
            raise UsageError("a webhook's address with a user in it is not supported", "Give one with a secret path.")

    @property
    def host(self) -> str:
        """All of the address that may be told."""
        return urlsplit(self.url).hostname or ""

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        verdict = diagnosis.verdict
        if verdict.category == "healthy":
            return
        from whichrank.report import json as form

        told = form.verdict(verdict)
        fields = {name: told[name] for name in ("category", "cause", "culprits", "confidence")}
        fields |= {"summary": _safe(verdict.summary), "fix": [_safe(step) for step in verdict.fix]}
        who = _who(verdict.culprits)
        what = f"{verdict.category}, {verdict.cause or 'unknown'}{f' ({who})' if who else ''}"
        text = f"{self.job} on {socket.gethostname()}: {what}\n{fields['summary']}\nThe evidence is in {self.out}"
        key = (verdict.cause, verdict.culprits.ranks, verdict.culprits.hosts)
        self._send(key, text, fields)

    def on_alarm(self, level: str, why: str) -> None:
        if level == "gave up":
            self._send((level,), f"{self.job} on {socket.gethostname()} is not started again: {why}", {"gave_up": why})

        elif level == "withdrawn":
            self._send(
                (level, len(self._told)),
                f"{self.job} on {socket.gethostname()}: {why}, the alarm is withdrawn",
                {"withdrawn": why},
            )

    def close(self) -> None:
        """Let what is under way arrive, for a while."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(FAREWELL_S)

    def _send(self, key: tuple[object, ...], text: str, fields: dict[str, Any]) -> None:
        if key in self._told or len(self._told) >= MOST:
            return
        self._told.add(key)
        news = {"job": self.job, "host": socket.gethostname(), "out": str(self.out), **fields}
        self._queue.put({"text": _plain(text), "whichrank": news})
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (news := self._queue.get()) is not None:
            failure = self._deliver(json.dumps(news, default=int).encode())
            if failure:
                self.tell(f"could not tell {self.host} of it: {failure}")

    def _deliver(self, body: bytes) -> str:
        """Why it did not arrive; empty when it did."""
        failure = ""
        for pause in (0.0, *self.pauses_s):
            time.sleep(pause * random.uniform(1.0, 1.5))  # noqa: S311 - no secret
            request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked
            failure, again = failure_of(request, ANSWER_S)
            if not again:
                break
        return failure


def failure_of(request: urllib.request.Request, patience_s: float) -> tuple[str, bool]:
    """Why a request failed (empty: it did not), and whether another try may help.

    Texts of exceptions can hold the address, which is a secret: they are not told.
    """
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=patience_s):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}", error.code >= 500 or error.code in _AGAIN
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        strerror = reason.strerror if isinstance(reason, OSError) else None
        return strerror or type(reason).__name__, True
    except Exception as error:  # noqa: BLE001 - http.client's own errors, for one
        return type(error).__name__, False


def _who(culprits: Subject) -> str:
    ranks = ", ".join(map(str, culprits.ranks[:8])) + (", …" if len(culprits.ranks) > 8 else "")
    named = [f"rank {ranks}"] if culprits.ranks else []
    return " of ".join([*named, ", ".join(culprits.hosts[:4])] if culprits.hosts else named)


def _safe(text: str) -> str:
    """What leaves this host holds no key or password that somebody had printed."""
    return without_secrets(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _plain(text: str) -> str:
    """Evidence is quoted in it: without Slack's own signs it can mention nobody and link nowhere."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
