"""News of an incident for trackers of experiments, one module each; every one needs its package.

A tracker is a module with `tell(news)`: it takes the news as `Told` has them and returns the id of the run that holds
them now. `python -m whichrank.integrations.trackers NAME` calls one with the news on stdin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """The news, as they come from the watcher."""

    place: str
    """The project, the experiment or the folder; empty: the tool's own default."""
    run: str
    """The run of earlier news; empty for the first."""
    title: str
    text: str
    key: str
    severity: str
    kind: str
    job: str
    page: str | None
    """The report as a page."""
    fields: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """What a run's summary shows: flat names, plain values."""
        culprits = self.fields.get("culprits") or {}
        found = {
            "category": self.fields.get("category"),
            "cause": self.fields.get("cause"),
            "confidence": self.fields.get("confidence"),
            "culprit_ranks": ", ".join(map(str, culprits.get("ranks") or [])),
            "culprit_hosts": ", ".join(map(str, culprits.get("hosts") or [])),
            "verdict": self.fields.get("summary") or self.title,
            "fix": "\n".join(self.fields.get("fix") or []),
            "evidence": self.fields.get("out"),
            "page": self.fields.get("page") or self.page,
        }
        return {name: value for name, value in found.items() if value not in (None, "")}
