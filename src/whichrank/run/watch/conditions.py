"""Keeps the conditions of a run beside its results, so that it can be compared with another one; of good runs too."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.evidence.collectors import conditions
from whichrank.model.files import replace_text
from whichrank.run.monitoring.observers import Silent
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.capture.at_start import GPUS
from whichrank.run.watch.job_processes import Member

SETTLED_S = 3.0
"""After the last rank of this host was seen: by then torch is loaded."""


@dataclass(slots=True)
class Conditions(Silent):
    """Looks once per attempt, in a thread of its own: the files of a program may lie on a slow disk."""

    out: Path
    private: Path
    command: Sequence[str]
    _ranks: frozenset[tuple[int, int]] = frozenset()
    _since: float = 0.0
    _done: bool = False
    _thread: threading.Thread | None = field(default=None)

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:  # noqa: ARG002 - an observer's
        living = [m for m in ranks if m.alive]
        seen = frozenset((m.rank, m.words.pid) for m in living)
        if not seen:
            return
        if not seen <= self._ranks:
            self._ranks, self._since, self._done = seen, now_s, False
        worked = all(m.words.completed for m in living)
        if not self._done and (worked or now_s - self._since > SETTLED_S):
            self._done = True
            people = {m.rank: (m.words.pid, dict(m.environ)) for m in living}
            self._thread = threading.Thread(target=self._keep, args=(people,), daemon=True)
            self._thread.start()

    def _keep(self, people: dict[int, tuple[int, dict[str, str]]]) -> None:
        found = conditions.of_job(self.command, people, self._network())
        found["taken_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found["gpus"] = _text(self.private / GPUS)
        try:
            replace_text(self.out / conditions.FILE, json.dumps(found, indent=1) + "\n", mode=0o600)
        except OSError:
            return  # a full disk: the watcher tells of it

    def _network(self) -> str:
        return "".join(_text(path) for path in sorted(self.private.glob("net.*.start")))


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""
