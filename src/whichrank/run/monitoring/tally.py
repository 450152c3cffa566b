"""What a watcher has seen, added up for metrics: bounded by the number of ranks, whatever the length of the job."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from whichrank.model.last_words import IN_COLLECTIVE, Words
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.run.monitoring.exposition import label
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.guarding import GuardState
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.slow.stragglers import Straggler

RATE_S = 30.0
"""Rates are taken over this time: long enough for steps of many seconds, short enough to see a stall."""
LONGEST_LOOK_S = 10.0
"""Two looks that are further apart than this say nothing about the time between them."""
MOST_OPERATIONS = 32
LEVELS = ("suspect", "confirmed", "crash", "wrong", "gave up", "withdrawn")


class Rates(NamedTuple):
    """Per second, over the last while."""

    fewest: float
    median: float
    steps: float | None
    """None where nobody counts them."""


@dataclass(slots=True)
class Rank:
    """The newest words of a rank."""

    words: Words
    alive: bool
    stopped: bool

    @property
    def process(self) -> tuple[int, int]:
        return (self.words.pid, self.words.start_ticks)


class Counts(NamedTuple):
    """How far the ranks were at one moment."""

    time_s: float
    fewest: int
    """Collectives issued by the rank with the fewest, and by the median rank."""
    median: float
    steps: int
    """Steps of the optimizers of the rank with the fewest; 0 where nobody counts them."""


@dataclass(slots=True)
class Tally:
    """An observer; `copy` gives another thread something to read."""

    job: str = ""
    ranks: dict[int, Rank] = field(default_factory=dict)
    waiting_s: dict[int, float] = field(default_factory=dict)
    """Rank -> seconds in which it was seen waiting, over all attempts."""
    waiting_in: dict[str, float] = field(default_factory=dict)
    """Operation -> the same, over all ranks."""
    level: Level = "calm"
    alarms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    restarts: int = 0
    verdict: Verdict | None = None
    verdict_at: float = 0.0
    waits: dict[str, int] = field(default_factory=dict)
    """Group -> ranks that wait in it, by the last verdict."""
    straggler: Straggler | None = None
    straggler_at: float = 0.0
    guard: GuardState | None = None
    """How far the guards of the ranks have been compared; None without them."""
    looked: float | None = None
    """Monotonic time of the last look."""
    ended: bool = False
    counts: deque[Counts] = field(default_factory=deque)
    """For rates."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:
        with self.lock:
            span = now_s - self.looked if self.looked is not None else 0.0
            self.looked, self.level = now_s, level
            self._meet({m.rank: Rank(m.words, m.alive, m.stopped) for m in ranks})
            if 0.0 < span <= LONGEST_LOOK_S:
                for number, rank in self.ranks.items():
                    self._wait(number, rank, span if rank.alive and rank.words.waiting else 0.0)
            self._count(now_s)

    def on_straggler(self, found: Straggler) -> None:
        with self.lock:
            self.straggler, self.straggler_at = found, self.looked or 0.0

    def on_alarm(self, level: str, why: str) -> None:  # noqa: ARG002 - why is free text, no metric
        with self.lock:
            self.alarms[level] = self.alarms.get(level, 0) + 1
            if level == "withdrawn":
                self.verdict, self.waits = None, {}

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        waits: dict[str, int] = {}
        names = {group.id: group.desc or group.name for group in diagnosis.groups}
        for wait in diagnosis.waits:
            name = label(names.get(wait.group) or wait.group)
            waits[name] = waits.get(name, 0) + 1
        with self.lock:
            self.verdict, self.verdict_at, self.waits = diagnosis.verdict, time.time(), waits

    def on_guard(self, state: GuardState) -> None:
        with self.lock:
            self.guard = state

    def end(self) -> None:
        """The job has ended: nothing hangs any more, and nobody looks."""
        with self.lock:
            self.ended, self.level, self.looked = True, "calm", None

    def rates(self) -> Rates | None:
        """None before a second look."""
        if len(self.counts) < 2:
            return None
        began, ended = self.counts[0], self.counts[-1]
        span = ended.time_s - began.time_s
        steps = max(0.0, (ended.steps - began.steps) / span) if ended.steps else None
        return Rates(
            max(0.0, (ended.fewest - began.fewest) / span), max(0.0, (ended.median - began.median) / span), steps
        )

    def _meet(self, seen: dict[int, Rank]) -> None:
        """A rank that is another process now: the job has been started again."""
        known = self.ranks
        if any(number in known and known[number].process != rank.process for number, rank in seen.items()):
            self.restarts += 1
            self.counts.clear()
        if seen:
            self.ranks = seen

    def _wait(self, number: int, rank: Rank, waited: float) -> None:
        self.waiting_s[number] = self.waiting_s.get(number, 0.0) + waited
        if waited:
            name = rank.words.operation.partition(" of ")[0] if rank.words.flags & IN_COLLECTIVE else ""
            name = name or "background"
            name = name if name in self.waiting_in or len(self.waiting_in) < MOST_OPERATIONS else "other"
            self.waiting_in[name] = self.waiting_in.get(name, 0.0) + waited

    def _count(self, now_s: float) -> None:
        issued = [rank.words.enqueued for rank in self.ranks.values()]
        if not issued:
            return
        if self.counts and now_s <= self.counts[-1].time_s:
            return
        steps = min(rank.words.steps for rank in self.ranks.values())
        self.counts.append(Counts(now_s, min(issued), median(issued), steps))
        while len(self.counts) > 2 and now_s - self.counts[1].time_s >= RATE_S:
            self.counts.popleft()
