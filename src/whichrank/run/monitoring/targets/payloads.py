"""The news as each service wants them. What is quoted is hostile: it must mention nobody and link nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whichrank.run.monitoring.news import News

SUMMARY = 1024
"""PagerDuty takes no longer summary."""
HEADER = 150
"""Slack takes no longer header."""


def plain(news: News) -> dict[str, Any]:
    """`text` for people (Mattermost, Rocket.Chat and others show it), the rest for programs."""
    return {"text": _escaped(news.text), "whichrank": news.for_programs()}


def slack(news: News) -> dict[str, Any]:
    """Slack's Block Kit: only documented fields, and quoted text is never read as a link or a mention."""
    summary = str(news.fields.get("summary", ""))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(news.title, HEADER), "emoji": False}}
    ]
    blocks += [_section(summary)] if summary else []
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(_steps(news), 1))
    blocks += [_section(f"What to do\n{steps}")] if steps else []
    where = _where(news)
    blocks.append({"type": "context", "elements": [_words(" · ".join(f"{name}: {value}" for name, value in where))]})
    return {"text": _escaped(news.text), "blocks": blocks}


def teams(news: News) -> dict[str, Any]:
    """A message with an Adaptive Card, as webhooks of Teams (Workflows) take it. Runs of text are not Markdown."""
    body = [_run(news.title, size="Large", weight="Bolder")]
    summary = str(news.fields.get("summary", ""))
    body += [_run(summary)] if summary else []
    body += [_run(f"{number}. {step}") for number, step in enumerate(_steps(news), 1)]
    body += [_run(f"{name}: {value}", isSubtle=True) for name, value in _where(news)]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if news.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the live page", "url": news.link}]
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


@dataclass(slots=True)
class Pager:
    """PagerDuty's Events API v2: an alert per incident, resolved when the alarm is withdrawn."""

    key: str
    _open: list[str] = field(default_factory=list)

    def events(self, news: News) -> list[dict[str, Any]]:
        if news.kind == "withdrawn":
            resolved = [{"routing_key": self.key, "event_action": "resolve", "dedup_key": each} for each in self._open]
            self._open.clear()
            return resolved
        self._open.append(news.key)
        event: dict[str, Any] = {
            "routing_key": self.key,
            "event_action": "trigger",
            "dedup_key": news.key,
            "client": "whichrank",
            "payload": {
                "summary": _cut(news.title, SUMMARY),
                "source": news.host,
                "severity": news.severity,
                "component": news.job,
                "class": str(news.fields.get("cause") or news.kind),
                "custom_details": news.for_programs(),
            },
        }
        if news.link:
            event["links"] = [{"href": news.link, "text": "the live page"}]
        return [event]


def _where(news: News) -> list[tuple[str, str]]:
    found = [("host", news.host), ("evidence", str(news.out))]
    found += [("report", str(news.page))] if news.page else []
    return found + ([("live page", news.link)] if news.link else [])


def _steps(news: News) -> list[str]:
    return [str(step) for step in news.fields.get("fix", [])][:5]


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _words(text)}


def _words(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": _escaped(_cut(text, 2000)), "verbatim": True}


def _run(text: str, **look: Any) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": _cut(text, 2000), **look}]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(text: str) -> str:
    """Without Slack's own signs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
