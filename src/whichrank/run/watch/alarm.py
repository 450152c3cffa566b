"""When to worry: the learned rhythm of a job, and what its silence means. Pure: looks in, levels out.

Nothing is to be set. A silence is judged by who waits for whom: when every rank waits, nobody can end it; when the
ranks that are waited for do nothing at all, hardly anybody will; when they work, or are where work takes long by its
nature (a checkpoint, an evaluation, a compilation), it is borne until it has lasted far longer than any before.

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

Level = Literal["calm", "suspect", "confirmed"]

ALL_WAIT_S = 5.0
SPINNING_S = 10.0
IDLE_S = 12.0
GIL_S = 12.0
GROUP_S = 20.0
START_S = 30.0
LOOP_S = 60.0
LONG_WORK_S = 75.0
NOBODY_WAITS_S = 90.0
BUSY_S = 180.0
MOVING_S = 480.0
"""How long each kind of silence is borne; more where the job has been silent for longer in this way, and went on.

The last is short of the ten minutes after which a collective on GPUs gives up by default."""
SOON_ALL_WAIT_S = 4.0
SOON_ASLEEP_S = 4.0
SOON_HELD_S = 6.0
SOON_LEADER_S = 8.0
SOON_LOOP_S = 10.0
SOON_WORK_S = 25.0
"""When each kind is reported in a job that has found its pace. Ranks that work alone by custom have more time."""
PACE, PRACTISED = 3, 20
"""Looks with progress, and collectives that every rank has completed, after which a job has found its pace."""
MANY = 100
"""Operations that nobody issues before the first of them has finished: Gloo does not count messages that arrived."""
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
UNMEASURED = "unmeasured"
DEBUGGER = "debugger"
WORK = ("busy", "loop", "start", "all send")
LEAST_SHARE = 0.25
"""Of a core: who gets less is borne no longer for it."""
STILL_S = 5.0
"""At the same instruction for so long, a main thread does not walk."""
BEATS_S = 1.0
"""What a rank says of its main thread may be older by two beats than what it says of its groups."""


@dataclass(slots=True)  # not frozen: a leader makes thousands of them at every look
class RankState:
    """What is known of one rank at one moment."""

    rank: int
    phase: int
    enqueued: int
    completed: int
    waiting: bool
    alive: bool = True
    busy: bool | None = None
    """Whether it does something; None while nobody has measured."""
    effort: float = 1.0
    """Share of a core that it gets, where it does something."""
    stopped: bool = False
    traced: bool = False
    """A debugger has stopped it."""
    asleep: bool = False
    """Its main thread has been in one sleep, or waits for one lock, all the time."""
    dormant: bool = False
    """Asleep, or all the time waiting for a child process."""
    leads: bool = False
    """The first or last of the job, or the first of its host: by custom they do what is done once."""
    beating: bool = True
    """Its own thread still writes: nobody holds the interpreter's lock."""
    still_s: float = 0.0
    """For how long its main thread has been at one instruction."""
    stale_s: float = 0.0
    """For how long its main thread has been at no line where it had not been before in this silence."""
    stuck_s: float = 0.0
    """For how long one of its groups has had something pending, and neither issued nor completed anything."""
    inside: bool = False
    """Its main thread is inside torch.distributed."""
    resting: bool = False
    """Its main thread hardly ever wakes."""
    traffic: bool = False
    """It reads or writes, whatever its processor does."""
    work: str = ""
    """What takes long by its nature and it is in."""
    mark: int = 0
    """Changes with the progress of the ranks that it stands for, in a job too large to tell of each."""

    @property
    def progress(self) -> tuple[int, int, int, int, bool, int]:
        return (self.rank, self.phase, self.enqueued, self.completed, self.alive, self.mark)

    @property
    def under_way(self) -> bool:
        """Something has been communicated."""
        return self.completed > 0 or self.enqueued >= MANY

    @property
    def away(self) -> bool:
        """It does not wait for others; what a held interpreter said before may be old."""
        return not self.waiting or self.stopped or not self.beating

    @property
    def stuck(self) -> bool:
        """It waits for a group that stands still, whatever its other groups and threads do."""
        return self.waiting and self.halted and self.stuck_s > STILL_S

    @property
    def another_waits(self) -> bool:
        """What is pending was issued after its main thread had halted elsewhere: another thread waits for it."""
        return self.halted and not self.inside and 0 < self.stuck_s < min(STILL_S, self.still_s - BEATS_S)

    @property
    def rested_s(self) -> float:
        """For how long it has come to no new line; progress of another thread begins `stale_s` anew, not `still_s`."""
        return max(self.stale_s, self.still_s)

    @property
    def halted(self) -> bool:
        return self.resting and self.still_s > STILL_S


@dataclass(frozen=True, slots=True)
class Silence:
    """A kind of silence: how long it is borne, and what is said of it."""

    kind: str
    limit_s: float
    why: str
    away: tuple[RankState, ...] = ()
    """The ranks that could end it."""
    soon_s: float | None = None
    """When it is reported if the job had a steady pace; None where that would be too soon."""


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
        limit, soon = self._limit(silence), self._soon(silence, ranks)
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

    def _soon(self, silence: Silence, ranks: list[RankState]) -> float:
        """When this silence is reported before its longer limit; never for a job that has not found its pace."""
        pace, usual = self.rhythms.get(""), self.rhythms.get(silence.kind)
        if silence.soon_s is None or pace is None or len(pace.gaps) < PACE or self._others_move or self.blind:
            return float("inf")
        if any(seen.alive and seen.completed < PRACTISED for seen in ranks):
            return float("inf")
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


def patience(ranks: list[RankState]) -> Silence:
    """What kind of silence this is, and how long it is borne."""
    alive = [seen for seen in ranks if seen.alive]
    waiting = [seen for seen in alive if not seen.away]
    away = tuple(seen for seen in alive if seen.away)
    if not alive:
        return Silence("over", float("inf"), "no rank is left")
    stopped = [seen.rank for seen in away if seen.stopped]
    if stopped and waiting:
        if any(seen.traced for seen in away):
            return Silence("debugged", BUSY_S, f"a debugger has stopped {_named(stopped)} while others wait", away)
        why = f"{_named(stopped)} stopped while others wait"
        return Silence("stopped", ALL_WAIT_S, why, away, soon_s=SOON_ASLEEP_S)
    if any(seen.phase < layout.JOINED for seen in alive):
        return _at_the_start(ranks, waiting, away)
    if not waiting:
        return _nobody_waits(away)
    if not away:
        return _all_wait(waiting)
    if all(seen.beating and seen.busy is None for seen in away):
        return Silence(UNMEASURED, float("inf"), "nobody knows yet", away)
    return _others_wait(away)


def _at_the_start(ranks: list[RankState], waiting: list[RankState], away: tuple[RankState, ...]) -> Silence:
    if not waiting:
        return Silence("start", float("inf"), "the job is starting", away)
    working = any(seen.busy is not False or seen.work for seen in away)
    return Silence("start", BUSY_S if working else START_S, _starting(ranks, waiting, away), away)


def _nobody_waits(away: tuple[RankState, ...]) -> Silence:
    quiet = all(seen.busy is False for seen in away)
    limit = (BUSY_S if any(seen.work for seen in away) else NOBODY_WAITS_S) if quiet else float("inf")
    return Silence("nobody waits", limit, "no rank issues a collective and none works", away)


def _all_wait(waiting: list[RankState]) -> Silence:
    if all(seen.phase == layout.LEAVING for seen in waiting):
        # Whoever uploads its last words to a service does so here, when all others may have gone.
        working = any(seen.busy is not False or seen.work for seen in waiting)
        why = f"{_named([seen.rank for seen in waiting])} does not come to an end"
        return Silence("leaving", BUSY_S if working else START_S, why)
    if not any(seen.under_way for seen in waiting):
        return Silence("first", 2 * START_S, "every rank waits in its first collective")
    if any(seen.traffic for seen in waiting):
        return Silence("all send", BUSY_S, "every rank waits in a collective that takes very long")
    # On a GPU a collective counts as issued while the work before it is still to be done, and who waits spins.
    spins = any(seen.busy for seen in waiting)
    why = "every rank waits in a collective"
    if spins:
        return Silence("all wait", SPINNING_S, why)
    return Silence("all wait", ALL_WAIT_S, why, soon_s=SOON_ALL_WAIT_S)


def _others_wait(away: tuple[RankState, ...]) -> Silence:
    working = next((seen.work for seen in away if seen.work), "")
    leads = any(seen.leads for seen in away)
    held = [seen.rank for seen in away if not seen.beating]
    if held:
        why = f"the interpreter of {_named(held)} does not run while others wait"
        # One that waits for a disk with the lock held may be answered yet.
        known = all(seen.busy or seen.asleep for seen in away if not seen.beating)
        soon = SOON_HELD_S / _share(away) if known and not working and not leads else None
        return Silence("held", LONG_WORK_S if working else GIL_S / _share(away), why, away, soon)
    busy = [seen for seen in away if seen.busy is not False]
    if not busy:
        inside = f" in its {working}" if working else ""
        verb = "does" if len(away) == 1 else "do"
        why = f"{_named([seen.rank for seen in away])} {verb} nothing{inside} while others wait"
        limit = BUSY_S if working == DEBUGGER else LONG_WORK_S if working else IDLE_S
        if working:  # what does nothing at all for so long, neither here nor in its children, does not write either
            soon = SOON_WORK_S if working != DEBUGGER and all(seen.dormant for seen in away) else None
            return Silence(f"idle {working}", limit, why, away, soon)
        asleep = all(seen.asleep or seen.stopped for seen in away)
        soon = SOON_LEADER_S if leads else SOON_ASLEEP_S
        return Silence("idle", limit, why, away, soon if asleep else None)
    who = _named([seen.rank for seen in busy])
    loop = f"{who} goes round in a loop while others wait"
    soon = SOON_LOOP_S if not working and not leads and all(map(_loops, busy)) else None
    if any(seen.traffic or seen.stale_s < LOOP_S / 2 for seen in busy):
        if soon is not None:
            return Silence("loop", MOVING_S, loop, away, soon)
        return Silence("busy", MOVING_S, f"{who} works on while others wait", away)
    if working or all(seen.still_s > STILL_S for seen in busy):
        return Silence("busy", BUSY_S, f"{who} works at one place while others wait", away)
    return Silence("loop", LOOP_S, loop, away, soon)


def _loops(seen: RankState) -> bool:
    """It moves, and has come to no new line for a while."""
    return not seen.traffic and seen.still_s < STILL_S and seen.stale_s > SOON_LOOP_S / 2


def _share(away: tuple[RankState, ...]) -> float:
    """The least share of a core that one gets which computes with the interpreter held: a busy host takes longer."""
    shares = [seen.effort for seen in away if not seen.beating and seen.busy]
    return min(1.0, max(LEAST_SHARE, min(shares, default=1.0)))


def _starting(ranks: list[RankState], waiting: list[RankState], away: tuple[RankState, ...]) -> str:
    gone = [seen.rank for seen in ranks if not seen.alive]
    late = [f"{_named([s.rank])} has only {layout.PHASES[s.phase]}" for s in away[:4]]
    late += [f"{_named(gone)} has ended"] if gone else []
    return f"{len(waiting)} ranks wait at the start" + (": " + ", ".join(late) if late else "")


def _named(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (", …" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
