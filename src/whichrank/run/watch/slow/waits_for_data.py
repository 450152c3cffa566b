"""A job that has become slow on all ranks because they wait for data. Pure: looks in, one out.

A job that was always like that has the pace that its user chose. One that made its steps faster a while ago, and whose
steps have become longer by about as much as they wait longer for data, has met slower data: a store instead of a cache,
larger files, other readers of the same disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.run.watch.job_processes import Member

LOADING = "data loading"
SPAN_S, LATEST = 2.0, 5
"""Of a span, of which the best that there was is compared with so many of the newest."""
STEPS, FEWEST = 10, 2
"""Steps of the best span, and of every slow one: with less it does something else, or starts."""
SLOWER = 0.6
"""Times the best pace: it must be slower than this."""
AS_FAST = 0.8
"""Times the pace of a job of which all ranks wait for data: with less, something else slows it down as well."""
MOST, EACH = 0.5, 0.35
"""Shares of the time in which the ranks, and each of them, load data now."""
EXPLAINED = 0.8
"""Share of what a step takes longer now, by which it waits longer for data."""


@dataclass(frozen=True, slots=True)
class WaitsForData:
    """How slow it became, and where the ranks wait."""

    pace: float
    """Steps per second now, and at its best."""
    before: float
    share: float
    """Of the time, that the ranks load data now, and at the best pace."""
    share_before: float
    place: str

    def __str__(self) -> str:
        where = f", mostly at {self.place}" if self.place else ""
        return (
            f"all ranks wait for data {self.share:.0%} of the time{where}: {self.pace:.2g} steps per second, after "
            f"{self.before:.2g} while they waited for data {self.share_before:.0%} of the time"
        )


@dataclass(frozen=True, slots=True)
class _Span:
    pace: float
    steps: int
    shares: tuple[float, ...]
    """Of the time that each rank loads data."""

    @property
    def share(self) -> float:
        return sum(self.shares) / len(self.shares)


@dataclass(slots=True)
class DataWaits:
    """Feed it with looks; `now` is what is slow at present."""

    now: WaitsForData | None = None
    first: WaitsForData | None = None
    """What was slow when that was first seen."""
    _best: _Span | None = None
    _latest: deque[_Span] = field(default_factory=lambda: deque(maxlen=LATEST))
    _began: float = 0.0
    _steps: dict[int, tuple[tuple[int, bool], int]] = field(default_factory=dict)
    """Rank -> its process and whether that counts steps, or collectives; so many at the beginning of the span."""
    _beats: dict[int, list[int]] = field(default_factory=dict)
    """Rank -> newest beat, beats of the span, those in which it loaded data."""

    def observe(self, now_s: float, ranks: Sequence[Member]) -> WaitsForData | None:
        """One look at all ranks."""
        for member in ranks:
            seen = self._beats.setdefault(member.rank, [member.words.beat, 0, 0])
            if member.words.beat != seen[0]:
                seen[0] = member.words.beat
                seen[1] += 1
                seen[2] += member.words.activity == LOADING
        if now_s - self._began >= SPAN_S:
            self._end_span(now_s, ranks)
        return self.now

    def _end_span(self, now_s: float, ranks: Sequence[Member]) -> None:
        steps = {m.rank: ((m.words.pid, m.words.steps > 0), m.words.steps or m.words.completed) for m in ranks}
        seconds = now_s - self._began
        span = self._span(seconds, steps) if self._began else None
        self._began, self._steps = now_s, steps
        self._beats = {rank: [seen[0], 0, 0] for rank, seen in self._beats.items() if rank in steps}
        if span is None:
            self._latest.clear()
            self.now = None
            return
        self._latest.append(span)
        if span.steps >= STEPS and (self._best is None or span.pace > self._best.pace):
            self._best = span
        self.now = self._judge(ranks)
        self.first = self.first or self.now

    @property
    def explains_the_pace(self) -> bool:
        """Whether the job is about as fast as when all ranks were first seen to wait for data: then whoever is the last
        of them is no straggler."""
        spans = self._latest
        pace = sum(span.pace for span in spans) / len(spans) if spans else 0.0
        return self.first is not None and pace >= AS_FAST * self.first.pace

    def _span(self, seconds: float, steps: dict[int, tuple[tuple[int, bool], int]]) -> _Span | None:
        if steps.keys() != self._steps.keys() or any(self._steps[rank][0] != steps[rank][0] for rank in steps):
            return None
        made = min(steps[rank][1] - self._steps[rank][1] for rank in steps)
        seen = [self._beats[rank] for rank in steps]
        if made < 0 or not all(beats for _, beats, _ in seen):
            return None
        return _Span(made / seconds, made, tuple(loading / beats for _, beats, loading in seen))

    def _judge(self, ranks: Sequence[Member]) -> WaitsForData | None:
        best, spans = self._best, tuple(self._latest)
        if best is None or len(spans) < LATEST or any(span.steps < FEWEST for span in spans):
            return None
        shares = [sum(each) / len(spans) for each in zip(*(span.shares for span in spans), strict=True)]
        share, pace = sum(shares) / len(shares), max(span.pace for span in spans)
        if pace > SLOWER * best.pace or share < MOST or min(shares) < EACH:
            return None
        mean = sum(span.pace for span in spans) / len(spans)
        if share / mean - best.share / best.pace < EXPLAINED * (1 / mean - 1 / best.pace):
            return None
        return WaitsForData(mean, best.pace, share, best.share, _place(ranks))


def _place(ranks: Sequence[Member]) -> str:
    """Where most of them were when they loaded data."""
    places = [m.words.place.rpartition("/")[2] for m in ranks if m.words.activity == LOADING]
    return max(sorted(set(places)), key=places.count, default="")
