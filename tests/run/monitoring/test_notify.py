"""News to a webhook: once, in Slack-compatible, bounded, and without a word about the address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.run.hooks import hook
from tests.run.watched import free_port
from whichrank.model.errors import UsageError
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.run.monitoring.notify import MOST, Notifier

OUT = Path("/tmp/out")
QUICK = (0.01, 0.02, 0.04)


def diagnosis(summary: str = "Rank 2 skipped all_reduce.", **more: object) -> Diagnosis:
    fields = {"category": "hang", "cause": "conditional-collective", "culprits": Subject((2,), ("node7",)), **more}
    return Diagnosis(Verdict(victims=(0,), confidence=0.8, summary=summary, fix=("Mend it.",), **fields))


def test_a_verdict_is_told_once() -> None:
    said: list[str] = []
    with hook() as server:
        notifier = Notifier(server.url, "train.py", said.append, OUT)
        notifier.on_alarm("suspect", "…")
        notifier.on_alarm("confirmed", "…")
        notifier.on_verdict(diagnosis())
        notifier.on_verdict(diagnosis("Rank 2 skipped all_reduce, again."))
        notifier.on_verdict(diagnosis(category="healthy", cause="healthy"))
        notifier.on_alarm("gave up", "the same cause at the same step, twice")
        notifier.close()
    first, second = server.received
    lines = first["text"].splitlines()
    assert lines[0].startswith("train.py on ")
    assert lines[0].endswith(": hang, conditional-collective (rank 2 of node7)")
    assert lines[1:] == ["Rank 2 skipped all_reduce.", "The evidence is in /tmp/out"]
    told = first["whichrank"]
    assert (told["cause"], told["category"], told["confidence"]) == ("conditional-collective", "hang", 0.8)
    assert (told["culprits"]["ranks"], told["fix"], told["out"]) == ([2], ["Mend it."], "/tmp/out")
    assert second["text"].endswith("is not started again: the same cause at the same step, twice")
    assert server.paths == ["/services/T000/SECRETPATH"] * 2
    assert said == []


def test_another_culprit_is_other_news_but_not_without_end() -> None:
    with hook() as server:
        notifier = Notifier(server.url, "train.py", out=OUT)
        for rank in range(MOST + 10):
            notifier.on_verdict(diagnosis(culprits=Subject((rank,))))
        notifier.close()
    assert len(server.received) == MOST


def test_evidence_can_mention_nobody_and_carries_no_secret() -> None:
    with hook() as server:
        notifier = Notifier(server.url, "train.py", out=OUT)
        notifier.on_verdict(diagnosis("ValueError: <!channel> & hf_abcdefghijklmnop\ud800 " + "x" * 5000))
        notifier.close()
    text = server.received[0]["text"]
    assert "&lt;!channel&gt; &amp; redacted" in text
    assert "hf_" not in str(server.received)
    assert len(text) < 2100


def test_a_server_that_recovers() -> None:
    said: list[str] = []
    with hook(503, 429, 200) as server:
        notifier = Notifier(server.url, "train.py", said.append, OUT, QUICK)
        notifier.on_verdict(diagnosis())
        notifier.close()
    assert len(server.received) == 3
    assert said == []


@pytest.mark.parametrize(("code", "tries"), [(404, 1), (500, 4), (302, 1), (307, 1)])
def test_a_server_that_does_not(code: int, tries: int) -> None:
    said: list[str] = []
    with hook(code) as server:
        notifier = Notifier(server.url, "train.py", said.append, OUT, QUICK)
        notifier.on_verdict(diagnosis())
        notifier.close()
    assert server.paths == ["/services/T000/SECRETPATH"] * tries, "and no redirect was followed"
    assert said == [f"could not tell 127.0.0.1 of it: HTTP {code}"]


def test_nobody_there() -> None:
    said: list[str] = []
    notifier = Notifier(f"http://127.0.0.1:{free_port()}/SECRETPATH", "train.py", said.append, OUT, QUICK)
    notifier.on_verdict(diagnosis())
    notifier.close()
    assert said == ["could not tell 127.0.0.1 of it: Connection refused"]


def test_the_watcher_does_not_wait_for_the_answer() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as mute:
        notifier = Notifier(f"http://127.0.0.1:{mute.getsockname()[1]}/", "train.py", said.append, OUT, QUICK)
        notifier.on_verdict(diagnosis())
        assert said == [], "it still tries"
    notifier.close()


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host/x", "file:///etc/passwd", "http://", "https://a:SECRET@host/x", "http://h/a b", "http://h/\n"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        Notifier(url, "train.py")
    assert "SECRET" not in refused.value.message + refused.value.hint
