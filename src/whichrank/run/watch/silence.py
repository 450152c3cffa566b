"""The kinds of silence: what the ranks do in it, and how long each kind is borne.

A silence is judged by who waits for whom: when every rank waits, nobody can end it; when the ranks that are waited for
do nothing at all, hardly anybody will; when they work, or are where work takes long by its nature (a checkpoint, an
evaluation, a compilation), it is borne until it has lasted far longer than any before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from whichrank.model import last_words as layout

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
SOON_LONG_LOOP_S = 75.0
"""When each kind is reported in a job that has found its pace. Ranks that work alone by custom have more time."""
MANY = 100
"""Operations that nobody issues before the first of them has finished: Gloo does not count messages that arrived."""
UNMEASURED = "unmeasured"
DEBUGGER = "debugger"
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
    slept_s: float = inf
    """For how long its main thread has not woken, where that is known."""
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
        return _after_the_group(away) if all(seen.phase == layout.LEFT for seen in away) else _nobody_waits(away)
    if not away:
        return _all_wait(waiting)
    if all(seen.beating and seen.busy is None for seen in away):
        return Silence(UNMEASURED, float("inf"), "nobody knows yet", away)
    return _others_wait(away)


def _at_the_start(ranks: list[RankState], waiting: list[RankState], away: tuple[RankState, ...]) -> Silence:
    if not waiting:
        # A short job may be over before it has said that it began.
        held = all(not seen.beating and seen.busy is False and seen.asleep for seen in away)
        if held:
            return Silence("held", BUSY_S, "the interpreter of no rank runs", away)
        return Silence("start", float("inf"), "the job is starting", away)
    working = any(seen.busy is not False or seen.work for seen in away)
    return Silence("start", BUSY_S if working else START_S, _starting(ranks, waiting, away), away)


def _nobody_waits(away: tuple[RankState, ...]) -> Silence:
    if all(seen.under_way and not seen.beating for seen in away):
        # One thread of each waits in a call of CUDA's, and with it all that asks CUDA for anything: that may take long.
        # Who sleeps with the interpreter held, as in a deadlock at the end of the script, is not computing.
        asleep = all(seen.busy is False and seen.asleep and not seen.work for seen in away)
        return Silence("held", LONG_WORK_S if asleep else BUSY_S, "the interpreter of no rank runs", away)
    quiet = all(seen.busy is False for seen in away)
    limit = (BUSY_S if any(seen.work for seen in away) else NOBODY_WAITS_S) if quiet else float("inf")
    return Silence("nobody waits", limit, "no rank issues a collective and none works", away)


def _after_the_group(away: tuple[RankState, ...]) -> Silence:
    """Who has left its group may have much to do yet; one that sleeps, or waits for a lock, does nothing of it."""
    verb = "does" if len(away) == 1 else "do"
    why = f"{_named([seen.rank for seen in away])} {verb} not come to an end"
    if all(seen.busy is False and seen.asleep and not seen.work for seen in away):
        return Silence("left", 2 * START_S, why, away)
    return replace(_nobody_waits(away), kind="left", why=why)


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
    # On a GPU a collective counts as issued while the work before it is still to be done, and who waits spins; where
    # each pair of ranks makes a communicator of its own, the last of them waits long for its first message.
    spins = any(seen.busy for seen in waiting)
    why = "every rank waits in a collective"
    if spins and (late := [seen.rank for seen in waiting if not seen.under_way]):
        return Silence("first", 2 * START_S, f"every rank waits, {_named(late)} in the first collective")
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
    soon = (SOON_LONG_LOOP_S if working or leads else SOON_LOOP_S) if all(map(_loops, busy)) else None
    if any(seen.traffic or seen.stale_s < LOOP_S / 2 for seen in busy):
        if soon is not None:
            return Silence("loop", MOVING_S, loop, away, soon)
        return Silence("busy", MOVING_S, f"{who} works on while others wait", away)
    if working or all(seen.still_s > STILL_S for seen in busy):
        why = f"{who} works at one place while others wait"
        return Silence("busy", BUSY_S, loop if soon is not None else why, away, soon)
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
