"""What is told of an incident, before it takes the form that a chat, a pager or a tracker wants."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whichrank.facts.redaction.redactor import without_secrets
from whichrank.model.findings import Subject
from whichrank.model.verdict import Verdict

Kind = Literal["verdict", "gave up", "withdrawn"]
PAGE = "report.html"
LONGEST = 2000


@dataclass(frozen=True, slots=True)
class News:
    """One incident. Secrets are masked already; everything in it may quote hostile evidence."""

    kind: Kind
    job: str
    host: str
    title: str
    """One line."""
    text: str
    """All of it for people, the title included."""
    key: str
    """The same for the same incident of the same run."""
    out: Path
    link: str = ""
    """The address of the live page, without its token; empty where there is none."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """For programs: category, cause, culprits, confidence, summary, fix."""

    @property
    def page(self) -> Path | None:
        """The report as a page, where the run has written one."""
        path = self.out / PAGE
        return path if self.kind == "verdict" and path.is_file() else None

    @property
    def severity(self) -> Literal["critical", "warning", "info"]:
        if self.kind == "withdrawn":
            return "info"
        return "warning" if self.fields.get("category") == "slow" else "critical"

    def for_programs(self) -> dict[str, Any]:
        told = {"job": self.job, "host": self.host, "out": str(self.out), **self.fields}
        if self.link:
            told["page"] = self.link
        return told


def of_verdict(verdict: Verdict, job: str, out: Path, link: str = "") -> News:
    from whichrank.report import json as form

    told = form.verdict(verdict)
    fields = {name: told[name] for name in ("category", "cause", "culprits", "confidence")}
    fields |= {"summary": _safe(verdict.summary), "fix": [_safe(step) for step in verdict.fix]}
    who = _who(verdict.culprits)
    host = socket.gethostname()
    title = f"{job} on {host}: {verdict.category}, {verdict.cause or 'unknown'}{f' ({who})' if who else ''}"
    text = f"{title}\n{fields['summary']}\nThe evidence is in {out}" + (f"\nThe live page: {link}" if link else "")
    key = (verdict.cause, verdict.culprits.ranks, verdict.culprits.hosts)
    return News("verdict", job, host, title, _cut(text), _digest(out, *key), out, link, fields)


def of_the_end(why: str, job: str, out: Path) -> News:
    """No restart is tried any more."""
    host = socket.gethostname()
    title = f"{job} on {host} is not started again: {_safe(why)}"
    return News("gave up", job, host, title, _cut(title), _digest(out, "gave up"), out, "", {"gave_up": _safe(why)})


def of_a_withdrawal(why: str, job: str, out: Path, number: int) -> News:
    """A hang has ended by itself."""
    host = socket.gethostname()
    title = f"{job} on {host}: {_safe(why)}, the alarm is withdrawn"
    told = {"withdrawn": _safe(why)}
    return News("withdrawn", job, host, title, _cut(title), _digest(out, "withdrawn", number), out, "", told)


def _who(culprits: Subject) -> str:
    ranks = ", ".join(map(str, culprits.ranks[:8])) + (", …" if len(culprits.ranks) > 8 else "")
    named = [f"rank {ranks}"] if culprits.ranks else []
    return " of ".join([*named, ", ".join(culprits.hosts[:4])] if culprits.hosts else named)


def _safe(text: str) -> str:
    """What leaves this host holds no key or password that somebody had printed."""
    return without_secrets(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
