"""When to worry: the learned rhythm of a job, and what its silence means. Pure: looks in, levels out.

Nothing is to be set. A silence is judged by who waits for whom: when every rank waits, nobody can end it; when the
ranks that are waited for do nothing at all, hardly anybody will; when they work, it is a checkpoint, a compilation
or an evaluation until it has lasted far longer than any before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from whichrank.model import last_words as layout

Level = Literal["calm", "suspect", "confirmed"]

ALL_WAIT_S = 5.0
IDLE_S = 10.0
GIL_S = 12.0
START_S = 30.0
NOBODY_WAITS_S = 90.0
BUSY_S = 180.0
"""How long each kind of silence is borne; more where the job has been silent for longer before and went on."""
TYPICAL = 8.0
LONGEST = 1.5
SECOND_LOOK_S = 3.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one rank at one moment."""

    rank: int
    phase: int
    enqueued: int
    completed: int
    waiting: bool
    alive: bool = True
    busy: bool = True
    stopped: bool = False
    beating: bool = True
    """Its own thread still writes: nobody holds the interpreter's lock."""
    place: str = ""
    """The line of the training code that it is at."""

    @property
    def progress(self) -> tuple[int, int, int, int, bool]:
        return (self.rank, self.phase, self.enqueued, self.completed, self.alive)


@dataclass(slots=True)
class Alarm:
    """Feed it with looks; it says how bad things are."""

    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    longest: float = 0.0
    level: Level = "calm"
    why: str = ""
    limit: float = 0.0
    """Seconds of silence that are borne at present."""
    _progress: tuple[object, ...] = ()
    _since: float | None = None
    _suspected: float = 0.0
    _steady: bool = False
    _places: tuple[str, ...] = ()

    def silence(self, now: float) -> float:
        """Seconds without any progress."""
        return now - self._since if self._since is not None else 0.0

    def observe(self, now: float, ranks: list[Seen]) -> Level:
        """One look at all ranks."""
        progress = tuple(sorted(seen.progress for seen in ranks))
        if self._since is None or progress != self._progress:
            self._moved(now, progress)
            # The start of a job has no rhythm yet: its pauses say nothing about later ones.
            self._steady = all(seen.phase == layout.JOINED and seen.completed for seen in ranks if seen.alive)
            return self.level
        limit, why = patience(ranks)
        learned = max(TYPICAL * (median(self.gaps) if self.gaps else 0.0), LONGEST * self.longest)
        limit = max(limit, learned)
        if self.level == "calm":
            self.limit = limit
        if self.level == "calm" and self.silence(now) > limit:
            self.level, self.why, self._suspected = "suspect", why, now
            self._places = _places(ranks)
        elif self.level == "suspect" and _places(ranks) != self._places:
            # Somebody moves in the code, though not in the collectives: the second look begins anew. How busy they
            # are says nothing any more: taking the evidence keeps them busy.
            self._places, self._suspected = _places(ranks), now
        elif self.level == "suspect" and now - self._suspected >= SECOND_LOOK_S:
            self.level = "confirmed"
        return self.level

    def excuse(self, now: float) -> None:
        """The watcher itself was away (suspended, stopped): this silence counts for nothing."""
        self._since, self.level = now, "calm"

    def _moved(self, now: float, progress: tuple[object, ...]) -> None:
        if self._since is not None and self._steady:
            gap = now - self._since
            self.gaps.append(gap)
            self.longest = max(self.longest, gap)
        self._since, self._progress, self.level = now, progress, "calm"


def patience(ranks: list[Seen]) -> tuple[float, str]:  # noqa: PLR0911 - a table of cases, in order
    """How long a silence of this kind is borne, and what kind it is."""
    alive = [seen for seen in ranks if seen.alive]
    waiting = [seen for seen in alive if seen.waiting and not seen.stopped]
    away = [seen for seen in alive if not seen.waiting or seen.stopped]
    if not alive:
        return float("inf"), "no rank is left"
    stopped = [seen.rank for seen in away if seen.stopped]
    if stopped and waiting:
        return ALL_WAIT_S, f"{_named(stopped)} stopped while others wait"
    if any(seen.phase < layout.JOINED for seen in alive):
        if not waiting:
            return float("inf"), "the job is starting"
        working = any(seen.busy for seen in away)
        return (BUSY_S if working else START_S), _starting(ranks, waiting, away)
    if not waiting:
        quiet = not any(seen.busy for seen in away)
        return (NOBODY_WAITS_S if quiet else float("inf")), "no rank issues a collective and none works"
    if not away:
        fresh = all(seen.completed == 0 for seen in waiting)
        return (2 * START_S if fresh else ALL_WAIT_S), "every rank waits in a collective"
    held = [seen.rank for seen in away if not seen.beating]
    if held:
        return GIL_S, f"the interpreter of {_named(held)} does not run while others wait"
    if any(seen.busy for seen in away):
        return BUSY_S, f"{_named([s.rank for s in away if s.busy])} works on while others wait"
    return IDLE_S, f"{_named([s.rank for s in away])} does nothing while others wait"


def _places(ranks: list[Seen]) -> tuple[str, ...]:
    return tuple(seen.place for seen in ranks if seen.alive)


def _starting(ranks: list[Seen], waiting: list[Seen], away: list[Seen]) -> str:
    gone = [seen.rank for seen in ranks if not seen.alive]
    late = [f"{_named([s.rank])} has only {layout.PHASES[s.phase]}" for s in away[:4]]
    late += [f"{_named(gone)} has ended"] if gone else []
    return f"{len(waiting)} ranks wait at the start" + (": " + ", ".join(late) if late else "")


def _named(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (", …" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
