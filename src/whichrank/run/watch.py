"""Watch a job while it runs: learn its rhythm, notice when it breaks, take the evidence, say what is wrong."""

from __future__ import annotations

import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from whichrank.evidence.bundle import Bundle, now
from whichrank.model import last_words as layout
from whichrank.model.verdict import Diagnosis
from whichrank.run import door
from whichrank.run.alarm import Alarm, Level, Seen
from whichrank.run.capture import ANSWER_S, NO_PLACES, ask_quickly, capture, gather, gather_end, keep_history, remember
from whichrank.run.crew import Crew, Member
from whichrank.run.journal import Journal
from whichrank.run.listeners import Audience
from whichrank.run.places import Output, Torch
from whichrank.run.scheduler import Scheduler

Policy = Literal["report", "end"]
Tell = Callable[[str], None]

LOOK_S = 0.5
ASKED_S = 0.2
"""Ranks that were asked to end may have heard it before this process: it is looked whether it hears it too."""
QUIET_S = 1.5
"""Silence after which it is worth to measure how busy the ranks are."""
AWAY_S = 10.0
FIRST_LOOK_S = 2.0
DOOR_S = 2.0
"""Dumps without frames take 30 ms; on a host that is busy with many ranks, more."""
RESUMED_S = 60.0
"""Of progress after a hang: in its last throes a job moves too."""
UNSEEN_S = 60.0
"""After which it is told that no process of the job has left a word."""
RESULTS = ("verdict.json", "report.md", "bundle")


@dataclass(slots=True)
class Watcher:
    """One thread beside the job; the job does not depend on it."""

    crew: Crew
    out: Path
    tell: Tell
    policy: Policy = "report"
    end_job: Callable[[], None] = lambda: None
    places: Torch = NO_PLACES
    output: Output = field(default_factory=Output)
    job_pid: int | None = None
    holds_door: bool = False
    """Whether the launcher is ours to stop for a moment."""
    gdb: bool = False
    """Whether a confirmed hang is looked at with gdb too: every rank stands still for seconds."""
    audience: Audience = field(default_factory=Audience)
    """Who else hears of looks, alarms and verdicts."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    alarm: Alarm = field(default_factory=Alarm)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    journal: Journal = field(init=False)
    diagnosis: Diagnosis | None = None
    bundle: Bundle | None = None
    token: str = "none"  # noqa: S105 - names a capture, opens nothing
    failed: bool = False
    """A rank has ended badly while the job ran."""
    attempt: int = 0
    base: int = 0
    """Attempts of launches before this one."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """What became of the attempts before this one."""
    all_well: bool = False
    """Nothing was wrong when somebody ended the job: there is no more to gather than who was there."""
    extra: Callable[[], dict[str, Any]] = dict
    """What else run.json says."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _count: int = 0
    _failed_attempt: int = -1
    _resumed: float | None = None
    """When what had been confirmed as a hang went on."""
    _blind: set[int] = field(default_factory=set)
    _withdrawn: Bundle | None = None
    """Of a suspicion that had gone when somebody ended the job."""

    def __post_init__(self) -> None:
        self.journal = Journal(self.out, self.tell)
        self.audience.tell = self.tell

    def run(self) -> None:
        """The thread: a failure in here is told, and the job goes on unwatched."""
        try:
            if self.holds_door:
                remember(self.crew.folder)
            self.scheduler.add_log(self.output)
            self.save("running")
            began = last = time.monotonic()
            told = ready = False
            while not self._stop.is_set():
                self.pause()
                now_s = time.monotonic()
                if now_s - last > AWAY_S:
                    self.alarm.excuse(now_s)
                self.look(now_s)
                if self.leaving and not told:
                    told = True
                    self.save("ending")
                elif self.scheduler.nearly_over and not ready:
                    ready = True
                    load_rules()
                if now_s - began > UNSEEN_S and not self.crew.members:
                    self.journal.complain("no Python process of the job can be seen: it runs unwatched")
                # What the look itself took (a capture, a diagnosis) is no absence.
                last = time.monotonic()
        except Exception as error:  # noqa: BLE001 - the job is worth more than its watcher
            self.tell(f"stopped watching after an error of its own ({type(error).__name__}: {error}); the job goes on")

    def stop(self) -> None:
        self._stop.set()
        self.journal.past.close()

    def pause(self) -> None:
        """Until the next look is due, or a process of the job ends."""
        handles = self.crew.watched()
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        if poll.poll(LOOK_S * 1000):
            self.refresh()

    def refresh(self) -> list[Member]:
        """Read the words anew; who has ended since is told at once."""
        before = {m.name for m in self.crew.ranks() if m.alive}
        ranks = self.crew.look()
        self.lost([m for m in self.crew.members.values() if m.name in before and not m.alive])
        newest = max((m.words.attempt for m in ranks), default=self.attempt)
        if newest > self.attempt:
            self.begin_attempt(newest)
        return ranks

    def lost(self, members: list[Member]) -> None:
        """Ranks have ended: if badly, ask the others at once, before the launcher ends them."""
        bad = [m for m in members if _ended_badly(m)]
        if any(m.status is not None and m.status & 0x7F == signal.SIGTERM for m in bad):
            time.sleep(ASKED_S)
        if self.leaving:
            return
        attempt = max((m.words.attempt for m in bad), default=-1)
        if attempt <= self._failed_attempt:
            return
        self.failed, self._failed_attempt = True, attempt
        self._count += 1
        self.token = f"lost{self._count}"
        parents = {m.words.parent for m in bad} if self.holds_door else set()
        with door.held([m.words for m in self.crew.members.values() if m.alive and m.words.pid in parents]):
            living = [m for m in self.crew.of_attempt(attempt).ranks() if m.alive and not m.stopped]
            ask_quickly(self.crew, living, self.token, DOOR_S)
        self.note_alarm("crash", f"rank {', '.join(str(m.rank) for m in bad)} ended")

    def look(self, now_s: float) -> None:
        """One look at everybody."""
        ranks = self.refresh()
        self.journal.history(now_s, ranks)
        if not ranks:
            return
        self.measure(now_s, ranks)
        self.weigh(now_s, ranks)

    def weigh(self, now_s: float, ranks: Sequence[Member]) -> None:
        """What all of them together say, and what is to be done about it."""
        before = self.alarm.level
        now_ns = time.time_ns()
        level = self.alarm.observe(now_s, [seen(m, now_ns) for m in ranks])
        self.audience.on_look(now_s, level, ranks)
        if level != before:
            self.turn(before, level)
        elif self._resumed is not None and now_s - self._resumed > RESUMED_S and level == "calm":
            self.resume()

    def measure(self, now_s: float, ranks: list[Member]) -> None:
        """How busy they are, while it is quiet; a rank that says no more is told."""
        stuck = any(m.words.stuck_ns and time.time_ns() - m.words.stuck_ns > QUIET_S * 1e9 for m in ranks)
        if stuck or self.alarm.silence(now_s) > QUIET_S:
            self.crew.measure(now_s)
        elif any(m.samples for m in ranks):
            self.crew.forget_effort()
        for member in ranks:
            if member.blind and member.words.pid not in self._blind:
                self._blind.add(member.words.pid)
                self.tell(f"rank {member.rank} can't be watched from inside any more ({member.words.error})")

    def turn(self, before: Level, level: Level) -> None:
        """Things got worse, or better."""
        try:
            if level == "suspect":
                self.suspect()
            elif level == "confirmed":
                self.confirm()
            elif self.alarms and before == "suspect":
                self.alarms[-1]["withdrawn"] = now()
                self.save("running")
            elif before == "confirmed":
                self._resumed = time.monotonic()
        except OSError as error:
            self.journal.complain(f"can't keep the evidence ({error}); the job goes on")

    def resume(self) -> None:
        """What was confirmed as a hang has ended by itself: its results are put aside, for another may come."""
        self._resumed = None
        number = len(list(self.journal.evidence().glob("resumed/*"))) + 1
        self.tell(f"the job goes on; what was found is in {self.put_aside(f'resumed/{number}')}")
        self.diagnosis = self.bundle = None
        self.save("running")

    def put_aside(self, place: str) -> Path:
        home = self.journal.evidence() / place
        home.mkdir(parents=True, exist_ok=True)
        for name in RESULTS:
            if (path := self.journal.evidence() / name).exists():
                path.rename(home / name)
        return home

    def suspect(self) -> None:
        self.note_alarm("suspect", self.alarm.why)
        self.take(FIRST_LOOK_S)
        self.save("suspect")
        load_rules()  # while the second look is due

    def confirm(self) -> None:
        """A second look shows no progress: the full capture, the verdict, and the chosen policy."""
        self.note_alarm("confirmed", self.alarm.why)
        self.tell(f"the job makes no progress: {self.alarm.why}; taking the evidence")
        try:
            self.take(ANSWER_S, pauses=True, gdb=self.gdb)
            self.judge()
        except Exception as error:  # noqa: BLE001 - what was chosen is done, and the watch goes on
            self.tell(f"can't say what is wrong ({type(error).__name__}: {error}); the evidence is in {self.out}")
        if self.policy == "end":
            self.enforce()

    def enforce(self) -> None:
        self.tell("ending the job, as asked by --policy end")
        self.end_job()

    def take(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        self._count += 1
        self.token = f"take{self._count}"
        bundle = self.open_bundle()
        capture(self.crew, bundle, self.token, patience_s=patience_s, places=self.places, pauses=pauses, gdb=gdb)
        keep_history(bundle, self.out)
        self.keep_output(bundle)
        bundle.close(self.job())

    def open_bundle(self) -> Bundle:
        if self.bundle is None:
            self.bundle = Bundle(self.journal.evidence() / "bundle", self.scheduler.node)
        return self.bundle

    def case_folder(self) -> Path:
        """What the verdict is given on."""
        return self.open_bundle().folder

    def leave(self) -> None:
        """Somebody ends the job: what ends from now on is no crash."""
        number = self.base + self.attempt
        crashed = any(alarm["level"] == "crash" and alarm["attempt"] == number for alarm in self.alarms)
        self.all_well = self.alarm.level == "calm" and not crashed
        if self.all_well:
            self._withdrawn, self.bundle = self.bundle, None

    @property
    def leaving(self) -> bool:
        return self.scheduler.leaving

    def keep_output(self, bundle: Bundle) -> None:
        """What the job printed, where that went to a file; and what its scheduler said."""
        self.scheduler.keep(bundle)
        for name, data in self.output.read().items():
            if data:
                bundle.add(f"logs/{name}.log", data, "output")

    def begin_attempt(self, number: int) -> None:
        """The launcher starts the ranks anew: what became of the attempt before is kept apart."""
        before, self.attempt = self.attempt, number
        if self.failed or self.bundle is not None:
            try:
                self.close_attempt(before)
            except Exception as error:  # noqa: BLE001 - this attempt is watched whatever became of the one before
                self.journal.complain(f"can't report on attempt {before} ({type(error).__name__}: {error})")
        self.failed, self.diagnosis, self.bundle, self.alarm, self._resumed = False, None, None, Alarm(), None

    def close_attempt(self, number: int) -> None:
        try:
            if self.diagnosis is None:
                self.gather(self.crew.of_attempt(number))
                self.judge()
        except Exception as error:  # noqa: BLE001 - what there is of it is kept all the same
            self.tell(f"can't say what was wrong ({type(error).__name__}: {error})")
        number += self.base
        self.put_aside(f"attempts/{number}")
        verdict = self.diagnosis.verdict if self.diagnosis else None
        told = {"cause": verdict.cause, "culprit_ranks": list(verdict.culprits.ranks)} if verdict else {}
        self.earlier.append({"attempt": number, "results": f"attempts/{number}", **told})
        self.save("running")

    def finish(self, code: int) -> None:
        """The job has ended: what it left, and a verdict if it ended badly."""
        self.crew.look()
        if code != 0 and self.diagnosis is None:
            self.gather(self.crew, exit_code=code)
            self.judge()
        self.crew.close()

    def gather(self, crew: Crew, **more: Any) -> None:
        """What the ended have left."""
        if self._withdrawn is not None:
            self._withdrawn = None
            self.put_aside("withdrawn")
        bundle = self.open_bundle()
        if self.all_well:
            gather_end(crew, bundle)
        else:
            gather(crew, bundle, self.token, places=self.places)
        keep_history(bundle, self.out)
        self.keep_output(bundle)
        bundle.close({**self.job(), **more})

    def judge(self) -> None:
        """Diagnose the bundle, and write what came of it."""
        from whichrank.flows.diagnose import diagnose
        from whichrank.report import load

        self.diagnosis = diagnose([self.case_folder()], jobs=1)
        for name, file in (("json", "verdict.json"), ("markdown", "report.md")):
            self.journal.write(file, "".join(load(name).render(self.diagnosis)))
        if self.alarms:
            self.alarms[-1]["verdict"] = now()
        self.save("stuck" if self.alarm.level == "confirmed" else "failed")
        if self.diagnosis.verdict.category != "unknown" or self.alarm.level == "confirmed":
            self.tell("".join(load("text").render(self.diagnosis)))
            self.tell(f"the evidence, verdict.json and report.md are in {self.journal.elsewhere or self.out}")
        self.audience.on_verdict(self.diagnosis)

    def note_alarm(self, level: str, why: str) -> None:
        """Remember an alarm; it is written with the next save."""
        if level == "crash" and self.leaving:
            return
        self.alarms.append(
            {
                "level": level,
                "time": now(),
                "why": why,
                "limit_s": round(self.alarm.limit, 1) if isfinite(self.alarm.limit) else None,
                "silence_s": round(self.alarm.silence(time.monotonic()), 1),
                "attempt": self.base + self.attempt,
            }
        )
        self.audience.on_alarm(level, why)

    def job(self) -> dict[str, Any]:
        ranks = self.crew.ranks()
        return {
            "world_size": max((m.words.world for m in ranks), default=None),
            "ranks_seen": [m.rank for m in ranks],
            "attempt": max((m.words.attempt for m in ranks), default=0),
            **self.scheduler.facts(),
        }

    def save(self, state: str, **more: Any) -> None:
        """run.json."""
        told = {"state": state, "attempts": self.base + self.attempt + 1, **self.job(), **self.extra()}
        private = str(self.crew.folder) if self.crew.folder.is_dir() else None
        told |= {
            **self.scheduler.told(),
            "earlier_attempts": self.earlier,
            "pid": self.job_pid,
            "private": private,
            "alarms": self.alarms,
            **self.audience.places,
        }
        self.journal.save({**told, **more})


def load_rules() -> None:
    """What a verdict needs, before it is needed: a second of work, and more on a busy host."""
    from whichrank.flows.diagnose import discover_rules
    from whichrank.report import load

    discover_rules()
    load("text")


def seen(member: Member, now_ns: int) -> Seen:
    """A member as the alarm sees it."""
    words = member.words
    return Seen(
        rank=words.rank,
        phase=words.phase,
        enqueued=words.enqueued,
        completed=words.completed,
        waiting=words.waiting,
        alive=member.alive,
        busy=member.busy,
        stopped=member.stopped,
        beating=not member.held,
        still_s=(now_ns - words.still_ns) / 1e9 if words.still_ns else 0.0,
        stale_s=(now_ns - words.fresh_ns) / 1e9 if words.fresh_ns else 0.0,
        stuck_s=(now_ns - words.stuck_ns) / 1e9 if words.stuck_ns else 0.0,
        resting=member.resting,
        traffic=member.transfers,
        work=words.work,
    )


def _ended_badly(member: Member) -> bool:
    if member.status is not None:
        return member.status != 0
    return member.words.phase != layout.ENDED
