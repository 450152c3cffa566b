"""Watch a job while it runs: learn its rhythm, notice when it breaks, take the evidence, say what is wrong."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whichrank.evidence.bundle import now
from whichrank.run.watch import launcher_pause
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.capture import ANSWER_S, ask_quickly, remember
from whichrank.run.watch.guarding import GuardWatch
from whichrank.run.watch.job_processes import JobProcesses, Member, ended_badly, rank_state
from whichrank.run.watch.run_record import RunRecord, load_rules
from whichrank.run.watch.scope import Scope, ThisHost

Policy = Literal["report", "end"]

LOOK_S = 0.5
ASKED_S = 0.2
"""Ranks that were asked to end may have heard it before this process: it is looked whether it hears it too."""
QUIET_S = 1.5
"""Silence after which it is worth to measure how busy the ranks are."""
AWAY_S = 10.0
FIRST_LOOK_S = 2.0
LAUNCHER_PAUSE_S = 2.0
"""Dumps without frames take 30 ms; on a host that is busy with many ranks, more."""
RESUMED_S = 5.0
RESUMED = 3
"""Seconds of progress after a hang, and collectives that every rank has completed since: an aborted one counts too."""
HEARD_S = 3.0
"""A silence that is older than the request to end by less than this has come with it."""
UNSEEN_S = 60.0
"""After which it is told that no process of the job has left a word."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)


@dataclass(slots=True)
class Watcher:
    """One thread beside the job; the job does not depend on it."""

    record: RunRecord
    """The evidence, the alarms and the verdict."""
    scope: Scope = field(default_factory=ThisHost)
    policy: Policy = "report"
    end_job: Callable[[], None] = lambda: None
    confirmed: Callable[[], None] = lambda: None
    """Called when a hang was judged and has lasted long enough to act on it, before the policy is carried out."""
    may_pause_launcher: bool = False
    """Whether the launcher is ours to stop for a moment."""
    gdb: bool = False
    """Whether a confirmed hang is looked at with gdb too: every rank stands still for seconds."""
    failed: bool = False
    """A rank has ended badly while the job ran."""
    guard: GuardWatch | None = None
    guard_stops: bool = False
    """Whether the job is ended as soon as its guards show that it goes wrong."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _failed_attempt: int = -1
    _left_s: float | None = None
    """When it was first seen that the job was asked to end."""
    _resumed: float | None = None
    """When what had been confirmed as a hang went on."""
    _to_act: bool = False
    """A hang was reported, and nothing was done about it yet."""
    _stood: dict[int, int] = field(default_factory=dict)
    """How far each rank was when the hang was confirmed."""
    _blind: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.record.about_nodes = self.scope.about
        self.scope.join(self)

    def tell(self, line: str) -> None:
        self.record.tell(line)

    def run(self) -> None:
        """The thread: a failure in here is told, and the job goes on unwatched."""
        try:
            if self.may_pause_launcher:
                remember(self.record.job_processes.folder)
            self.record.scheduler.add_log(self.record.output)
            self.record.save("running")
            began = last = time.monotonic()
            told = ready = False
            while not self._stop.is_set():
                now_s = self._next_look(last)
                if self.record.leaving and not told:
                    told = True
                    self.record.save("ending")
                elif self.record.scheduler.nearly_over and not ready:
                    ready = True
                    load_rules()
                if now_s - began > UNSEEN_S and not self.record.job_processes.members:
                    self.record.journal.complain("no Python process of the job can be seen: it runs unwatched")
                # What the look itself took (a capture, a diagnosis) is no absence.
                last = time.monotonic()
        except Exception as error:  # noqa: BLE001 - the job is worth more than its watcher
            self.tell(f"stopped watching after an error of its own ({type(error).__name__}: {error}); the job goes on")

    def _next_look(self, last_s: float) -> float:
        """Wait and look; with no descriptor or memory left for it, the next look comes later."""
        try:
            self.pause()
            now_s = time.monotonic()
            if now_s - last_s > AWAY_S:
                self.record.alarm.excuse(now_s)
            self.look(now_s)
        except OSError as error:
            if error.errno not in _SHORTAGES:
                raise
            self.record.journal.complain(f"could not look at the job ({error}); trying again")
            self._stop.wait(LOOK_S)
            now_s = time.monotonic()
        return now_s

    def stop(self) -> None:
        self._stop.set()
        self.record.journal.past.close()

    def pause(self) -> None:
        """Until the next look is due, or a process of the job ends."""
        if self.record.job_processes.wait_for_end(LOOK_S):
            self.refresh()

    def refresh(self) -> list[Member]:
        """Read the words anew; who has ended since is told at once."""
        before = {m.name for m in self.record.job_processes.ranks() if m.alive}
        ranks = self.record.job_processes.look()
        self.lost([m for m in self.record.job_processes.members.values() if m.name in before and not m.alive])
        newest = max((m.words.attempt for m in ranks), default=self.record.attempt)
        if newest > self.record.attempt:
            self.begin_attempt(newest)
        return ranks

    def lost(self, members: list[Member]) -> None:
        """Ranks have ended: if badly, ask the others at once, before the launcher ends them."""
        if members:
            self.scope.ranks_ended()
        bad = [m for m in members if ended_badly(m)]
        if any(m.status is not None and m.status & 0x7F == signal.SIGTERM for m in bad):
            time.sleep(ASKED_S)
        if self.record.leaving:
            return
        attempt = max((m.words.attempt for m in bad), default=-1)
        if attempt <= self._failed_attempt:
            return
        self.failed, self._failed_attempt = True, attempt
        self.record.name_capture("lost")
        parents = {m.words.parent for m in bad} if self.may_pause_launcher else set()
        with launcher_pause.paused(
            [m.words for m in self.record.job_processes.members.values() if m.alive and m.words.pid in parents]
        ):
            living = [m for m in self.record.job_processes.of_attempt(attempt).ranks() if m.alive and not m.stopped]
            ask_quickly(self.record.job_processes, living, self.record.token, LAUNCHER_PAUSE_S)
        self.record.note_alarm("crash", f"rank {', '.join(str(m.rank) for m in bad)} ended")

    def look(self, now_s: float) -> None:
        """One look at everybody."""
        ranks = self.refresh()
        self.record.journal.history(now_s, ranks)
        if ranks:
            self.measure(now_s, ranks)
        if everyone := self.scope.look(now_s, ranks):
            self.weigh(now_s, everyone)

    def weigh(self, now_s: float, ranks: Sequence[Member]) -> None:
        """What all of them together say, and what is to be done about it."""
        before = self.record.alarm.level
        if self._obeys(now_s):
            self.record.audience.on_look(now_s, before, ranks)
            return
        now_ns = time.time_ns()
        level = self.record.alarm.observe(now_s, [rank_state(m, now_ns) for m in ranks])
        self.record.audience.on_look(now_s, level, ranks)
        if self.scope.shows_each(ranks):
            self.record.note_slowness(now_s, ranks)
        if level != before:
            self.turn(before, level)
        elif self._to_act and level == "confirmed" and self.record.alarm.sure:
            self.act()
        elif self._resumed is not None and now_s - self._resumed > RESUMED_S and self._goes_on(ranks):
            self.resume()

    def _obeys(self, now_s: float) -> bool:
        """It was asked to end and went on until then: that its ranks stand still one after the other is no hang."""
        if not self.record.leaving:
            return False
        if self._left_s is None:
            self._left_s = now_s
        return self.record.alarm.level == "calm" and self.record.alarm.silence(now_s) < now_s - self._left_s + HEARD_S

    def measure(self, now_s: float, ranks: list[Member]) -> None:
        """How busy they are, while it is quiet; a rank that says no more is told."""
        stuck = any(m.words.stuck_ns and time.time_ns() - m.words.stuck_ns > QUIET_S * 1e9 for m in ranks)
        if stuck or self.record.alarm.silence(now_s) > QUIET_S:
            self.record.job_processes.measure(now_s)
        elif any(m.samples for m in ranks):
            self.record.job_processes.forget_effort()
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
            elif self.record.alarms and before == "suspect":
                self.record.alarms[-1]["withdrawn"] = now()
                self.record.save("running")
            elif before == "confirmed":
                self._resumed, self._to_act = time.monotonic(), False
        except OSError as error:
            self.record.journal.complain(f"can't keep the evidence ({error}); the job goes on")

    def _goes_on(self, ranks: Sequence[Member]) -> bool:
        """Whether every rank works on as before."""
        if self.failed or self.record.alarm.level != "calm":
            return False
        return all(m.alive and m.words.completed >= self._stood.get(m.rank, 0) + RESUMED for m in ranks)

    def resume(self, *, ended: bool = False) -> None:
        """What was confirmed as a hang has ended by itself: the alarm is withdrawn, its results are put aside."""
        self._resumed = None
        number = len(list(self.record.journal.evidence().glob("resumed/*"))) + 1
        place = self.record.put_aside(f"resumed/{number}")
        went = "the job went on and ended well" if ended else "the job goes on"
        self.tell(f"{went}: the alarm is withdrawn; what was found is in {place}")
        self.record.withdraw(went)
        self.record.bundle = None
        self.record.save("running")
        self.scope.resumed()

    def suspect(self) -> None:
        self.record.note_alarm("suspect", self.record.alarm.why)
        self.take(FIRST_LOOK_S)
        self.record.save("suspect")
        # While the second look is due: what a first verdict imports and reads takes a second and more.
        load_rules()
        if self.scope.judges:
            self.record.rehearse_verdict()

    def take(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        """Capture all ranks while they live."""
        token = self.scope.ask("full" if pauses else "look")
        self.take_here(patience_s, pauses=pauses, gdb=gdb)
        if pauses:
            self.scope.collect(token)

    def take_here(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        """Capture the ranks of this host."""
        self.scope.before_capture()
        self.record.take(patience_s, pauses=pauses, gdb=gdb)

    def gather(self, job_processes: JobProcesses, **more: Any) -> None:
        """What the ended have left, everywhere."""
        attempts = {m.words.attempt for m in job_processes.members.values()}
        token = self.scope.ask("gather", max(attempts, default=None))
        self.gather_here(job_processes, **more)
        self.scope.collect(token)

    def gather_here(self, job_processes: JobProcesses, **more: Any) -> None:
        """What the ended have left on this host."""
        self.scope.before_capture()
        self.record.gather(job_processes, **more)

    def judge(self) -> None:
        """The verdict; where another judges, it is not ours to give."""
        if not self.scope.judges:
            return
        self.scope.before_verdict()
        self.record.judge()
        if self.record.diagnosis is not None:
            self.scope.after_verdict(self.record.diagnosis)

    def confirm(self) -> None:
        """A second look shows no progress: the full capture, the verdict, and in time the chosen policy."""
        self.record.note_alarm("confirmed", self.record.alarm.why)
        self._stood = {member.rank: member.words.completed for member in self.record.job_processes.ranks()}
        self.tell(f"the job makes no progress: {self.record.alarm.why}; taking the evidence")
        self._judge_after(lambda: self.take(ANSWER_S, pauses=True, gdb=self.gdb))
        self._to_act = True
        if self.record.alarm.sure:
            self.act()

    def act(self) -> None:
        """The hang has lasted long enough for what can't be taken back."""
        self._to_act = False
        self.confirmed()
        if self.policy == "end":
            self.enforce()

    def _judge_after(self, taking: Callable[[], None]) -> None:
        """Take the evidence and judge it; whatever fails, the watch goes on."""
        try:
            taking()
            self.judge()
        except Exception as error:  # noqa: BLE001 - what was chosen is done, and the watch goes on
            why = f"{type(error).__name__}: {error}"
            self.tell(f"can't say what is wrong ({why}); the evidence is in {self.record.out}")

    def enforce(self) -> None:
        self.scope.ask("end")
        self.tell("ending the job, as asked by --policy end")
        self.end_job()

    def guard_with(self, folder: Path, *, stop: bool) -> None:
        """Compare what the guards of the ranks write into this folder."""
        self.guard_stops = stop
        self.guard = GuardWatch(
            folder, self.tell, self.went_wrong, self.record.audience.on_guard, self.scope.guard(folder),
            lambda: self.scope.judges,
        )  # fmt: skip
        self.record.audience.observers.append(self.guard)

    def went_wrong(self, why: str) -> None:
        """The guards have found that the job goes on with wrong numbers."""
        first = not any(alarm["level"] == "wrong" for alarm in self.record.alarms)
        self.record.note_alarm("wrong", why)
        self.tell(f"the job computes something wrong: {why}")
        if not first or self._stop.is_set():
            return  # the verdict on all of it comes at the end
        self._judge_after(lambda: self.gather(self.record.job_processes))
        if self.guard_stops:
            self.tell("ending the job before it writes another checkpoint, as asked by --guard-stop")
            self.scope.ask("end")
            self.end_job()

    def begin_attempt(self, number: int) -> None:
        """The launcher starts the ranks anew: what became of the attempt before is kept apart."""
        before = self.record.attempt
        self.record.attempt = number
        if self.failed or self.record.bundle is not None:
            try:
                self.close_attempt(before)
            except Exception as error:  # noqa: BLE001 - this attempt is watched whatever became of the one before
                self.record.journal.complain(f"can't report on attempt {before} ({type(error).__name__}: {error})")
        self.failed, self._resumed, self._to_act = False, None, False
        self.record.begin_attempt(number)
        self.scope.begin_attempt()

    def close_attempt(self, number: int) -> None:
        """A verdict on an attempt that has ended, and its results put aside."""
        try:
            if self.record.diagnosis is None:
                self.gather(self.record.job_processes.of_attempt(number))
                self.judge()
        except Exception as error:  # noqa: BLE001 - what there is of it is kept all the same
            self.tell(f"can't say what was wrong ({type(error).__name__}: {error})")
        self.record.close_attempt(number)

    def finish(self, code: int) -> None:
        """The job has ended: what it left, and a verdict if it ended badly anywhere."""
        self.record.job_processes.look()
        self.scope.ended(code)
        if self.scope.judges:
            self._conclude(code, elsewhere=self.scope.others_failed(code))
        else:
            self.scope.hand_over(code)
        self.record.job_processes.close()

    def _conclude(self, code: int, *, elsewhere: bool) -> None:
        wrong = self.finish_guard()
        if code == 0 and not wrong and not elsewhere:
            found = self.record.diagnosis
            if found is not None and found.verdict.category == "hang" and not self.failed:
                self.resume(ended=True)  # a job that ended well was not hung for good
            self.record.report_slowness()
        failed = (code != 0 or elsewhere) and self.record.diagnosis is None and not self.scope.told_verdict
        if wrong or failed:
            self.gather(self.record.job_processes, exit_code=code)
            self.judge()

    def finish_guard(self) -> bool:
        """The last records of the guards; whether there is something to be judged in all of them."""
        if self.guard is None:
            return False
        self.guard.look(last=True)
        if self.guard.alarming:
            return True
        self.tell(self.guard.summary())
        try:
            self.guard.keep_aside(self.record.out)
        except OSError as error:
            self.record.journal.complain(f"can't keep the records of the guard ({error})")
        return False
