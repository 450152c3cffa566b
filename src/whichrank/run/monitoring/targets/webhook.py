"""Webhooks: Slack, Microsoft Teams, PagerDuty, and any program that takes JSON."""

from __future__ import annotations

import json
import os
import random
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.news import News
from whichrank.run.monitoring.post import failure_of
from whichrank.run.monitoring.targets import payloads

ANSWER_S = 5.0
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
PAGERDUTY_KEY = "WHICHRANK_PAGERDUTY_KEY"
Shape = Callable[[News], list[dict[str, Any]]]
_HOSTS: Mapping[str, tuple[str, ...]] = {
    "slack": ("hooks.slack.com", "hooks.slack-gov.com"),
    "teams": (".webhook.office.com", ".logic.azure.com", ".powerplatform.com"),
    "pagerduty": ("events.pagerduty.com", "events.eu.pagerduty.com"),
}


@dataclass(slots=True)
class Webhook:
    """One address, and the form in which it wants the news."""

    url: str
    pauses_s: tuple[float, ...]
    shape: Shape = field(default=lambda news: [payloads.plain(news)])
    patience_s: float = 10.0

    @property
    def name(self) -> str:
        return urlsplit(self.url).hostname or ""

    @classmethod
    def of(cls, word: str, pauses_s: tuple[float, ...]) -> Webhook:
        """By `slack:URL`, `teams:URL`, `pagerduty:`, or by the host of an address."""
        kind, _, rest = word.partition(":")
        named = kind in _HOSTS
        url = (rest or PAGERDUTY if kind == "pagerduty" else rest) if named else word
        _check(url)
        host = urlsplit(url).hostname or ""
        if not named:
            kind = next((kind for kind, ends in _HOSTS.items() if host.endswith(ends)), "")
        return cls(url, pauses_s, _shape(kind))

    def deliver(self, news: News) -> str:
        for payload in self.shape(news):
            failure = self._post(json.dumps(payload, default=int).encode())
            if failure:
                return failure
        return ""

    def _post(self, body: bytes) -> str:
        failure = ""
        for pause in (0.0, *self.pauses_s):
            time.sleep(pause * random.uniform(1.0, 1.5))  # noqa: S311 - no secret
            request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked
            failure, again = failure_of(request, ANSWER_S)
            if not again:
                break
        return failure


def _shape(kind: str) -> Shape:
    if kind == "slack":
        return lambda news: [payloads.slack(news)]
    if kind == "teams":
        return lambda news: [payloads.teams(news)]
    if kind == "pagerduty":
        key = os.environ.get(PAGERDUTY_KEY, "").strip()
        if not key:
            raise UsageError("PagerDuty needs a routing key", f"Set {PAGERDUTY_KEY} to the integration key.")
        return payloads.Pager(key).events
    return lambda news: [payloads.plain(news)]


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        hint = (
            "Give an address with http:// or https://, mailto:NAME@HOST, wandb, mlflow, tensorboard:FOLDER or trackio."
        )
        raise UsageError("--notify does not name a target", hint)
    if parts.username or parts.password:
        raise UsageError("a webhook's address with a user in it is not supported", "Give one with a secret path.")
