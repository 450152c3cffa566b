"""When to worry: the learned rhythm of a job, and what its silence means. Pure: looks in, levels out.

Nothing is to be set: `silence.py` says which kind of silence it is, and how long that is borne.

Each silence has two limits. It is reported soon where the job had a steady pace and what is seen leaves hardly another
explanation: the rank sleeps in one call, is stopped, goes round the same lines, or everybody waits. The longer limit is
for everything else, and for ending a job (`sure`): what was reported too soon is withdrawn, what was ended is lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from whichrank.model import last_words as layout
from whichrank.run.watch.silence import BUSY_S, GROUP_S, LONG_WORK_S, UNMEASURED, RankState, Silence, patience

Level = Literal["calm", "suspect", "confirmed"]

PACE, PRACTISED = 3, 20
"""Looks with progress, and collectives that every rank has completed, after which a job has found its pace."""
LATE_LOOK_S = 1.5
"""A look may see so much later that a rank has gone to sleep."""
TYPICAL = 8.0
ENOUGH = 8
LONGEST = 1.5
RHYTHM = 3.0
"""Times the usual silence of a kind (after so many of them), the longest of that kind, and the usual time between two
signs of progress."""
SECOND_LOOK_S = 3.0
SECOND_LOOK_AWAY_S = 5.0
SECOND_LOOK_SOON_S = 2.0
"""A rank that is away may come back; where all wait, nobody is left who could."""
WORK = ("busy", "loop", "start", "all send")


@dataclass(slots=True)
class _Rhythm:
    """How long silences of one kind have been."""

    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    longest: float = 0.0

    def learn(self, gap: float) -> None:
        self.gaps.append(gap)
        self.longest = max(self.longest, gap)

    @property
    def usual(self) -> float:
        """What is to be borne by experience."""
        typical = median(self.gaps) if len(self.gaps) >= ENOUGH else 0.0
        return max(TYPICAL * typical, LONGEST * self.longest)


@dataclass(slots=True)
class Alarm:
    """Feed it with looks; it says how bad things are."""

    level: Level = "calm"
    why: str = ""
    limit: float = 0.0
    """Seconds of silence that are borne at present."""
    sure: bool = False
    """What is confirmed has lasted so long that the job may be ended for it."""
    rhythms: dict[str, _Rhythm] = field(default_factory=dict)
    """By kind of silence; "" for the time between two signs of progress."""
    blind: bool = False
    """There are ranks that nobody watches: they may be the ones that work."""
    _progress: tuple[object, ...] = ()
    _since: float | None = None
    _suspected: float = 0.0
    _steady: bool = False
    _kind: str = ""
    _kind_since: float = 0.0
    _others_move: bool = False
    _waited_since: float | None = None
    """Since when somebody waits in this silence."""
    _reported_soon: str = ""
    """The kind of silence that was suspected before its longer limit."""
    _measured: dict[int, tuple[bool | None, float, bool]] = field(default_factory=dict)
    """Rank -> how busy it was when it was suspected: from then on it also answers our own questions."""

    def silence(self, now: float) -> float:
        """Seconds without any progress."""
        return now - self._since if self._since is not None else 0.0

    def observe(self, now: float, ranks: list[RankState]) -> Level:
        """One look at all ranks."""
        progress = tuple(sorted(seen.progress for seen in ranks))
        one_stands = _group_stands(ranks)
        if self._since is None or (progress != self._progress and not one_stands):
            self._moved(now, progress)
            # The start of a job has no rhythm yet: its pauses say nothing about later ones.
            self._steady = all(seen.phase == layout.JOINED and seen.under_way for seen in ranks if seen.alive)
            return self.level
        if one_stands:
            # Other groups may go on: the silence is as old as the youngest halt of a main thread. Who waits for them
            # now and then in another thread does not wait for the group that stands.
            ranks = [replace(seen, waiting=False) if seen.another_waits else seen for seen in ranks]
            self._since = min(self._since, now - min(seen.still_s for seen in ranks if seen.alive))
            self._others_move = self._others_move or progress != self._progress
            self._progress = progress
        silence = patience(ranks if self.level == "calm" else self._without_answers(ranks))
        if not any(seen.alive and not seen.away for seen in ranks):
            self._waited_since = None
        elif self._waited_since is None:
            self._waited_since = now if self._kind else self._since
        self._turn(now, silence.kind)
        # Who has worked for long and rests now has not idled for long; work itself is counted from the beginning.
        lasting = self.silence(now) if silence.kind in WORK else now - self._kind_since
        limit, soon = self._limit(silence), self._soon(now, silence, ranks)
        if self.level == "calm":
            self.limit = min(limit, soon)
            overdue, early = lasting > limit, self._lasting_soon(now, silence) > soon
            if overdue or early:
                self.level, self.why, self._suspected = "suspect", silence.why, now
                self._reported_soon = "" if overdue else silence.kind
                self._measured = {seen.rank: (seen.busy, seen.effort, seen.traffic) for seen in ranks}
        elif self.level == "suspect":
            self._second_look(now, silence)
        else:
            self.sure = self.sure or lasting > limit + SECOND_LOOK_AWAY_S
        return self.level

    def _without_answers(self, ranks: list[RankState]) -> list[RankState]:
        """A rank that was asked writes a dump, which costs its process time and bytes while its main thread rests."""
        known = self._measured
        return [
            replace(seen, busy=known[seen.rank][0], effort=known[seen.rank][1], traffic=known[seen.rank][2])
            if seen.rank in known and (seen.waiting or seen.asleep)
            else seen
            for seen in ranks
        ]

    def _soon(self, now: float, silence: Silence, ranks: list[RankState]) -> float:
        """When this silence is reported before its longer limit; never for a job that has not found its pace."""
        pace, usual = self.rhythms.get(""), self.rhythms.get(silence.kind)
        if silence.soon_s is None or pace is None or len(pace.gaps) < PACE or self._others_move or self.blind:
            return float("inf")
        if any(seen.alive and seen.completed < PRACTISED for seen in ranks):
            return float("inf")
        if any(seen.asleep and now - seen.slept_s > self._kind_since + LATE_LOOK_S for seen in silence.away):
            return float("inf")  # it tries something again and again, with pauses
        return max(silence.soon_s, usual.usual if usual else 0.0, TYPICAL * median(pace.gaps))

    def _lasting_soon(self, now: float, silence: Silence) -> float:
        """A loop is reported soon after others began to wait for it, not after a long calculation of all."""
        since = self._waited_since if silence.kind in WORK else self._kind_since
        return now - since if since is not None else 0.0

    def _turn(self, now: float, kind: str) -> None:
        if kind == self._kind:
            return
        if self._kind in ("", UNMEASURED):
            self._kind_since = self._since if self._since is not None else now
        else:
            self._kind_since = now
        self._kind = kind

    def _limit(self, silence: Silence) -> float:
        rhythm, usual = self.rhythms.get(""), self.rhythms.get(silence.kind)
        return max(
            silence.limit_s,
            GROUP_S if self._others_move else 0.0,
            usual.usual if usual else 0.0,
            RHYTHM * median(rhythm.gaps) if rhythm else 0.0,
            self._unwatched(silence),
        )

    def _unwatched(self, silence: Silence) -> float:
        """What is to be borne for the sake of ranks that nobody watches."""
        if not self.blind or silence.kind in ("stopped", "held"):
            return 0.0
        return LONG_WORK_S if silence.kind.startswith("idle") else BUSY_S

    def excuse(self, now: float) -> None:
        """The watcher itself was away (suspended, stopped): this silence counts for nothing."""
        self._since, self.level, self._kind, self.sure, self._waited_since = now, "calm", "", False, None

    def _second_look(self, now: float, silence: Silence) -> None:
        """Whoever could end the silence must not have come to a new line since; how busy it is says nothing now."""
        span = SECOND_LOOK_AWAY_S if silence.away else SECOND_LOOK_S
        if self._reported_soon:
            if silence.kind != self._reported_soon or silence.soon_s is None:
                self.level = "calm"  # it does something else now: its longer limit decides
                return
            span = SECOND_LOOK_SOON_S
        rested = [seen.rested_s for seen in silence.away if not seen.stopped and seen.beating]
        if now - self._suspected >= span and min(rested, default=span) >= span:
            self.level, self.sure = "confirmed", not self._reported_soon

    def _moved(self, now: float, progress: tuple[object, ...]) -> None:
        if self._since is not None and self._steady:
            for kind in {"", self._kind}:
                self.rhythms.setdefault(kind, _Rhythm()).learn(now - self._since)
        self._since, self._progress, self.level, self._kind, self._others_move = now, progress, "calm", "", False
        self.sure, self._waited_since, self._reported_soon = False, None, ""


def _group_stands(ranks: list[RankState]) -> bool:
    """Some wait in a group that stands still, and nobody walks: what else is counted is another thread's."""
    alive = [seen for seen in ranks if seen.alive]
    return any(seen.stuck for seen in alive) and all(seen.halted for seen in alive)
