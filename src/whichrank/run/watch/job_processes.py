"""The processes of a watched job, by the last words that they leave, and by /proc."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.last_words import Words
from whichrank.run.watch.silence import RankState

BUSY_SHARE = 0.05
"""Of a core: less is what an idle Python process with its waiting threads needs."""
BUSY_BYTES = 65_536
"""Read or written in a second: less is what logs and heartbeats need."""
BEAT_S = 3.0
"""Without a beat for so long, the interpreter of a process is held (it beats twice a second)."""
RESTING = 2.0
"""Turns of the main thread in a second: less is what waits or sleeps, with a look around now and then."""
DEEP = 0.5
"""Turns in a second: less is what has not woken at all."""
WINDOW_S = 3.0
"""Over which is measured: one burst of a logger or a collection of garbage is no work."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Member:
    """One process of the job that may be a rank."""

    words: Words
    name: str
    """Its files in the private folder begin with this."""
    pidfd: int = -1
    environ: dict[str, str] = field(default_factory=dict)
    """What it was started with; empty where that could not be had."""
    alive: bool = True
    status: int | None = None
    """How it ended, as wait(2) has it; None where nobody could tell."""
    ended_ns: int | None = None
    state: str = ""
    effort: float | None = None
    """Share of a core that it and its children use; None while nobody has measured."""
    traffic: float | None = None
    """Bytes per second that they read and write."""
    turns: float | None = None
    """How often its main thread leaves a processor in a second."""
    woke_ns: int = 0
    """When its main thread was last seen to have left a processor since the look before; 0 where it was not."""
    rest: str = ""
    """What its main thread waited in at every look: "sleep", "lock", "child", or "" for something else."""
    samples: deque[tuple[float, int, int, int | None, str]] = field(default_factory=deque)
    mark: int = 0
    """Changes with the progress of the ranks that it stands for; 0 for a process of its own."""

    @property
    def rank(self) -> int:
        return self.words.rank

    @property
    def busy(self) -> bool | None:
        """Whether it does something; None while nobody has measured."""
        return None if self.effort is None else self.effort > BUSY_SHARE or self.transfers

    @property
    def transfers(self) -> bool:
        """Whether it reads or writes to speak of."""
        return self.traffic is not None and self.traffic > BUSY_BYTES

    @property
    def resting(self) -> bool:
        return self.turns is not None and self.turns < RESTING

    @property
    def asleep(self) -> bool:
        """It sleeps or waits for a lock and has not woken once; who waits for its data loader waits for others."""
        waits = self.rest == "sleep" or (self.rest == "lock" and self.words.activity != "data loading")
        return waits and self.turns is not None and self.turns < DEEP

    @property
    def dormant(self) -> bool:
        """It is asleep, or waits for a child that ends by itself or never."""
        return self.asleep or (self.rest == "child" and self.turns is not None and self.turns < DEEP)

    @property
    def stopped(self) -> bool:
        return self.alive and self.state in ("T", "t")

    @property
    def silent_s(self) -> float:
        """Since when its thread has not written a word."""
        return max(0.0, (time.time_ns() - self.words.beat_ns) / 1e9)

    @property
    def holds_gil(self) -> bool:
        """Alive and not stopped, and still its own thread does not run: somebody holds the interpreter's lock."""
        return self.alive and not self.stopped and not self.blind and self.silent_s > BEAT_S

    @property
    def blind(self) -> bool:
        """The thread inside has given up: its words are old, and nobody holds anything."""
        return bool(self.words.flags & layout.BLIND)

    def measure(self, everyone: dict[int, processes.Stat], now: float) -> None:
        """CPU and bytes since the last measurement, of the process and all below it, without what our thread does: a
        collection of garbage or a dump in reserve takes its turn there, and a rank that idles looks busy."""
        own_ticks, own_bytes = processes.thread_use(self.words.pid, self.words.thread)
        row = processes.stat(self.words.pid)  # at the same moment: to look at everyone may have taken a while
        if row is None:
            return
        self.state = row.state
        children = processes.below(self.words.pid, everyone)
        ticks = row.cpu_ticks - own_ticks + sum(everyone[pid].cpu_ticks for pid in children)
        moved = sum(processes.written_bytes(pid) for pid in (self.words.pid, *children)) - own_bytes
        self.samples.append((now, ticks, moved, processes.turns(self.words.pid), processes.rest(self.words.pid)))
        if len(self.samples) > 1 and self.samples[-1][3] != self.samples[-2][3]:
            self.woke_ns = time.time_ns()
        while len(self.samples) > 2 and now - self.samples[1][0] >= WINDOW_S:
            self.samples.popleft()
        first = self.samples[0]
        if now - first[0] >= 1.0:
            span = now - first[0]
            self.effort = max(0.0, (ticks - first[1]) / TICKS_PER_S / span)
            self.traffic = max(0.0, (moved - first[2]) / span)
            turns = self.samples[-1][3]
            self.turns = (turns - first[3]) / span if turns is not None and first[3] is not None else None
            self.rest = self.samples[-1][4] if all(sample[4] for sample in self.samples) else ""

    def forget_effort(self) -> None:
        self.effort = self.traffic = self.turns = None
        self.rest = ""
        self.samples.clear()


@dataclass(slots=True)
class JobProcesses:
    """All processes that have left words in the private folder."""

    folder: Path
    members: dict[str, Member] = field(default_factory=dict)

    def look(self) -> list[Member]:
        """Read the words anew; returns the ranks, one process each (the newest), in order."""
        for name, data in self._written():
            words = layout.newest(data)
            if words is None:
                continue
            if name in self.members:
                self.members[name].words = words
            else:
                self.members[name] = Member(words, name, handle_on(words))
        for member in self.members.values():
            if member.alive:
                self.check(member)
        return self.ranks()

    def _written(self) -> Iterator[tuple[str, bytes]]:
        """The files of words. Read twice a second for each rank, so by plain calls of the system."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except OSError:
            return
        for name in names:
            if name.endswith(layout.SUFFIX):
                with suppress(OSError):
                    yield name[: -len(layout.SUFFIX)], processes.start_of(f"{self.folder}/{name}", layout.SIZE)

    def ranks(self) -> list[Member]:
        """The ranks of the newest attempt; helpers that carry the number of their rank are left out."""
        pids = {member.words.pid: member for member in self.members.values()}
        found: dict[int, Member] = {}
        above = self._above()
        joined = {
            (m.rank, m.words.attempt)
            for m in self.members.values()
            if m.words.has_joined and not m.words.flags & layout.BELOW
        }
        # Of two that were given the same number, the one that uses torch is the rank; else the newest.
        for member in sorted(
            self.members.values(),
            key=lambda m: (m.words.attempt, m.words.phase >= layout.IMPORTING, m.words.started_ns),
        ):
            if not member.words.is_rank or (member.words.flags & layout.GUESSED and member.words.pid in above):
                continue
            # What a rank has started is not a rank, wherever it hangs by now: unless it alone has joined.
            if member.words.flags & layout.BELOW and (
                not member.words.has_joined or (member.rank, member.words.attempt) in joined
            ):
                continue
            parent = pids.get(member.words.parent)
            # A child of a rank is its helper, unless it alone has joined: then the parent was a wrapper around it.
            alone = member.words.phase >= layout.JOINED > (parent.words.phase if parent is not None else 0)
            if parent is not None and parent.words.rank == member.rank and not alone:
                continue
            found[member.rank] = member
        newest = max((m.words.attempt for m in found.values()), default=0)
        return [found[rank] for rank in sorted(found) if found[rank].words.attempt == newest]

    def _above(self) -> set[int]:
        """Processes that have started one whose rank is known: they are launchers, whatever number they have."""
        if not any(member.words.flags & layout.GUESSED for member in self.members.values()):
            return set()
        parents = {member.words.pid: member.words.parent for member in self.members.values()}
        found: set[int] = set()
        for member in self.members.values():
            pid = member.words.parent if member.words.is_rank and not member.words.flags & layout.GUESSED else 0
            while pid in parents and pid not in found:
                found.add(pid)
                pid = parents[pid]
        return found

    def of_attempt(self, number: int) -> JobProcesses:
        """Those of one attempt alone, as they are known now."""
        return JobProcesses(self.folder, {name: m for name, m in self.members.items() if m.words.attempt == number})

    def wait_for_end(self, limit_s: float) -> bool:
        """Wait until one of them ends, but no longer than this; whether one has."""
        poll = select.poll()
        for member in self.members.values():
            if member.alive and member.pidfd >= 0:
                poll.register(member.pidfd, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))

    def measure(self, now: float) -> None:
        """How busy every rank is."""
        everyone = processes.everybody()
        for member in self.ranks():
            if member.alive:
                member.measure(everyone, now)

    def forget_effort(self) -> None:
        for member in self.members.values():
            member.forget_effort()

    def close(self) -> None:
        for member in self.members.values():
            if member.pidfd >= 0:
                os.close(member.pidfd)
                member.pidfd = -1

    def check(self, member: Member) -> None:
        row = processes.stat(member.words.pid)
        if row is not None and row.start_ticks == member.words.start_ticks and row.state not in "ZX":
            member.state = row.state
            return
        member.alive, member.state = False, ""
        member.ended_ns = time.time_ns()
        if member.pidfd >= 0:
            member.status = processes.exit_status(member.pidfd, member.words.pid, member.words.start_ticks)


def handle_on(words: Words) -> int:
    """A handle on the process; -1 where it is gone, is another by now, or the kernel has none."""
    try:
        handle = os.pidfd_open(words.pid)
    except (OSError, AttributeError):
        return -1
    if not processes.same(words.pid, words.start_ticks):
        os.close(handle)
        return -1
    return handle


def rank_state(member: Member, now_ns: int) -> RankState:
    """A member as the alarm sees it."""
    words = member.words
    return RankState(
        rank=words.rank,
        phase=words.phase,
        enqueued=words.enqueued,
        completed=words.completed,
        waiting=words.waiting,
        alive=member.alive,
        busy=member.busy,
        effort=member.effort if member.effort is not None else 1.0,
        stopped=member.stopped,
        traced=member.stopped and member.state == "t",
        asleep=member.asleep,
        dormant=member.dormant,
        slept_s=(now_ns - member.woke_ns) / 1e9 if member.woke_ns else inf,
        leads=words.rank in (0, words.world - 1) or words.local_rank == 0,
        beating=not member.holds_gil,
        still_s=(now_ns - words.still_ns) / 1e9 if words.still_ns else 0.0,
        stale_s=(now_ns - words.fresh_ns) / 1e9 if words.fresh_ns else 0.0,
        stuck_s=(now_ns - words.stuck_ns) / 1e9 if words.stuck_ns else 0.0,
        inside=bool(words.flags & layout.IN_COLLECTIVE),
        resting=member.resting,
        traffic=member.transfers,
        work=words.work,
        mark=member.mark,
    )


def ended_badly(member: Member) -> bool:
    if member.status is not None:
        return member.status != 0
    return member.words.phase != layout.ENDED
