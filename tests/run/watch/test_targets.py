"""Each service gets the news in its documented form, received by real servers; hostile quotes stay text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.run.hooks import hook
from tests.run.mailbox import mailbox
from tests.run.monitoring.test_notify import QUICK, diagnosis
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.notify import Notifier
from whichrank.run.monitoring.targets import target_of
from whichrank.run.monitoring.targets.webhook import Webhook

HOSTILE = "<!channel> <https://evil.example|click> [click](https://evil.example) *bold* `x`\x1b[31m @here"
TEXT = {"type": "string", "minLength": 1}
# https://docs.slack.dev/reference/block-kit/blocks and …/composition-objects/text-object
SLACK = {
    "type": "object", "required": ["text", "blocks"], "additionalProperties": False,
    "properties": {"text": TEXT, "blocks": {"type": "array", "maxItems": 50, "items": {"oneOf": [
        {"additionalProperties": False, "required": ["type", "text"], "properties": {
            "type": {"const": "header"}, "text": {"required": ["type", "text"], "additionalProperties": False,
            "properties": {"type": {"const": "plain_text"}, "text": {**TEXT, "maxLength": 150},
                           "emoji": {"type": "boolean"}}}}},
        {"additionalProperties": False, "required": ["type", "text"], "properties": {
            "type": {"const": "section"}, "text": {"$ref": "#/$defs/mrkdwn"}}},
        {"additionalProperties": False, "required": ["type", "elements"], "properties": {
            "type": {"const": "context"}, "elements": {"type": "array", "maxItems": 10,
                                                       "items": {"$ref": "#/$defs/mrkdwn"}}}},
    ]}}},
    "$defs": {"mrkdwn": {"required": ["type", "text"], "additionalProperties": False, "properties": {
        "type": {"const": "mrkdwn"}, "text": {**TEXT, "maxLength": 3000}, "verbatim": {"type": "boolean"}}}},
}  # fmt: skip
# https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using and
# https://adaptivecards.io/explorer
RUNS = {"type": "array", "minItems": 1, "items": {"required": ["type", "text"], "additionalProperties": False,
        "properties": {"type": {"const": "TextRun"}, "text": TEXT, "size": {"enum": ["Default", "Medium", "Large"]},
                       "weight": {"enum": ["Default", "Bolder"]}, "isSubtle": {"type": "boolean"}}}}  # fmt: skip
TEAMS = {
    "type": "object", "required": ["type", "attachments"], "additionalProperties": False,
    "properties": {"type": {"const": "message"}, "attachments": {"type": "array", "minItems": 1, "items": {
        "required": ["contentType", "content"], "additionalProperties": False, "properties": {
            "contentType": {"const": "application/vnd.microsoft.card.adaptive"}, "contentUrl": {"type": "null"},
            "content": {"required": ["type", "version", "body"], "additionalProperties": False, "properties": {
                "$schema": {"type": "string"}, "type": {"const": "AdaptiveCard"}, "version": {"const": "1.4"},
                "body": {"type": "array", "items": {"required": ["type", "inlines"], "properties": {
                    "type": {"const": "RichTextBlock"}, "inlines": RUNS}}},
                "actions": {"type": "array", "items": {"required": ["type", "url"], "properties": {
                    "type": {"const": "Action.OpenUrl"}}}}}}}}}},
}  # fmt: skip
# https://developer.pagerduty.com/docs/events-api-v2-overview, /send-alert-event
PAGERDUTY = {
    "type": "object", "required": ["routing_key", "event_action", "dedup_key"], "additionalProperties": False,
    "properties": {
        "routing_key": {"type": "string", "minLength": 32, "maxLength": 32},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255}, "client": TEXT, "client_url": TEXT,
        "links": {"type": "array", "items": {"required": ["href"], "properties": {"href": TEXT, "text": TEXT}}},
        "payload": {"required": ["summary", "source", "severity"], "additionalProperties": False, "properties": {
            "summary": {**TEXT, "maxLength": 1024}, "source": TEXT,
            "severity": {"enum": ["critical", "error", "warning", "info"]}, "timestamp": TEXT, "component": TEXT,
            "group": TEXT, "class": TEXT, "custom_details": {"type": "object"}}}},
    "if": {"properties": {"event_action": {"const": "trigger"}}}, "then": {"required": ["payload"]},
}  # fmt: skip
KEY = "0123456789abcdef0123456789abcdef"


def told(word: str, tmp_path: Path, **more: Any) -> list[str]:
    """Everything that a run may tell, to one target; what the notifier complained of."""
    said: list[str] = []
    (tmp_path / "report.html").write_text("<!doctype html><title>the report</title>")
    notifier = Notifier(word, "train.py", said.append, tmp_path, QUICK, link="http://127.0.0.1:8080/")
    notifier.on_verdict(diagnosis(f"Rank 2 said {HOSTILE} {'x' * 5000}", **more))
    notifier.on_alarm("withdrawn", "rank 2 went on")
    notifier.on_alarm("gave up", "the same cause at the same step, twice")
    notifier.close()
    return said


@pytest.mark.parametrize(("kind", "schema"), [("slack", SLACK), ("teams", TEAMS), ("pagerduty", PAGERDUTY)])
def test_what_a_service_gets_is_what_it_documents(kind: str, schema: dict[str, Any], tmp_path: Path, monkeypatch):
    monkeypatch.setenv("WHICHRANK_PAGERDUTY_KEY", KEY)
    with hook() as server:
        assert told(f"{kind}:{server.url}", tmp_path) == []
    assert len(server.received) == 3
    for payload in server.received:
        jsonschema.validate(payload, schema)
        assert len(json.dumps(payload)) < 28_000  # Teams takes no more, and the others do
    assert "rank 2 of node7" in json.dumps(server.received[0])


def test_slack_mentions_nobody(tmp_path: Path) -> None:
    with hook() as server:
        told(f"slack:{server.url}", tmp_path)
    texts = [block["text"] for block in server.received[0]["blocks"] if block["type"] == "section"]
    assert all("<" not in each["text"] and each["verbatim"] for each in texts)
    assert "&lt;!channel&gt;" in texts[0]["text"]


def test_a_pager_is_told_that_it_is_over(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WHICHRANK_PAGERDUTY_KEY", KEY)
    with hook() as server:
        told(f"pagerduty:{server.url}", tmp_path)
    alarm, over, end = server.received
    assert [each["event_action"] for each in (alarm, over, end)] == ["trigger", "resolve", "trigger"]
    assert alarm["dedup_key"] == over["dedup_key"] != end["dedup_key"]
    assert (alarm["payload"]["severity"], alarm["payload"]["class"]) == ("critical", "conditional-collective")
    assert alarm["links"] == [{"href": "http://127.0.0.1:8080/", "text": "the live page"}]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "hooks.slack.com"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "prod-1.westeurope.logic.azure.com"),
        ("https://events.eu.pagerduty.com/v2/enqueue", "events.eu.pagerduty.com"),
        ("pagerduty:", "events.pagerduty.com"),
    ],
)
def test_an_address_says_which_service_it_is(url: str, host: str, monkeypatch) -> None:
    monkeypatch.setenv("WHICHRANK_PAGERDUTY_KEY", KEY)
    target = target_of(url)
    assert isinstance(target, Webhook)
    assert target.name == host
    assert target.shape is not Webhook("https://x.example/", ()).shape


def test_mail_has_the_verdict_and_the_page(tmp_path: Path, monkeypatch) -> None:
    with mailbox(450, 250) as box:
        monkeypatch.setenv("WHICHRANK_SMTP", f"smtp://127.0.0.1:{box.port}")
        monkeypatch.setenv("WHICHRANK_MAIL_FROM", "jobs@cluster.example")
        assert told("mailto:oncall@example.com,lead@example.com", tmp_path) == []
    # The first recipient was refused for the moment, and got it at the next try.
    assert [line for line in box.said if line.startswith("rcpt")][2] == "rcpt TO:<oncall@example.com>"
    first = box.messages[0]
    assert (first["From"], first["To"]) == ("jobs@cluster.example", "oncall@example.com, lead@example.com")
    assert "hang, conditional-collective (rank 2 of node7)" in first["Subject"]
    body, page = first.iter_parts()
    assert "What to do:\n1. Mend it." in body.get_content().replace("\r\n", "\n")
    assert (page.get_filename(), page.get_content_type()) == ("report.html", "text/html")
    assert "the report" in page.get_content()
    assert [len(list(each.iter_attachments())) for each in box.messages] == [1, 1, 0, 0]


def test_a_password_is_not_sent_in_the_clear(tmp_path: Path, monkeypatch) -> None:
    with mailbox() as box:
        monkeypatch.setenv("WHICHRANK_SMTP", f"smtp://somebody@127.0.0.1:{box.port}")
        monkeypatch.setenv("WHICHRANK_SMTP_PASSWORD", "hunter2hunter2")
        said = told("mailto:oncall@example.com", tmp_path)
    assert box.messages == []
    assert not [line for line in box.said if "AUTH" in line.upper()]
    assert said[0] == "could not tell 127.0.0.1 of it: the server offers no encryption, so the password was not sent"


@pytest.mark.parametrize(
    "word",
    ["mailto:", "mailto:nobody", "mailto:a@b\r\nBcc: c@d", "pagerduty:", "tensorboard", "slack:", "slack:x", "teams"],
)
def test_words_that_name_nobody(word: str, monkeypatch) -> None:
    monkeypatch.delenv("WHICHRANK_PAGERDUTY_KEY", raising=False)
    with pytest.raises(UsageError):
        target_of(word)
