"""Who can be told of an incident: one module per way of telling."""

from __future__ import annotations

from typing import Protocol

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.news import News

PAUSES_S = (1.0, 2.0, 4.0)
"""Between tries; each is stretched by up to a half, so that many jobs don't come back at once."""
TRACKERS = ("wandb", "mlflow", "tensorboard", "trackio")


class Target(Protocol):
    """One receiver of news."""

    @property
    def name(self) -> str:
        """All of it that may be told: a host, or the name of a tool."""

    @property
    def patience_s(self) -> float:
        """How long the end of the job waits for it."""

    def deliver(self, news: News) -> str:
        """Tell it; why that failed, or nothing."""


def target_of(word: str, pauses_s: tuple[float, ...] = PAUSES_S) -> Target:
    """The target that a word of --notify names."""
    kind, _, rest = word.partition(":")
    if kind == "mailto":
        from whichrank.run.monitoring.targets.mail import Mail

        return Mail.of(rest, pauses_s)
    if kind in TRACKERS:
        from whichrank.run.monitoring.targets.tracker import Tracker

        return Tracker.of(kind, rest)
    if not word:
        raise UsageError("--notify has no target", "Give an address with https://, mailto:, or the name of a tracker.")
    from whichrank.run.monitoring.targets.webhook import Webhook

    return Webhook.of(word, pauses_s)
