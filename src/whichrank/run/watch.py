"""Watch a job while it runs: learn its rhythm, notice when it breaks, take the evidence, say what is wrong."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whichrank.evidence.bundle import Bundle, now
from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.verdict import Diagnosis
from whichrank.run.alarm import Alarm, Seen
from whichrank.run.capture import ANSWER_S, NO_PLACES, ask_quickly, capture, gather
from whichrank.run.crew import Crew, Member
from whichrank.run.places import Output, Torch

Policy = Literal["report", "end"]
Tell = Callable[[str], None]

LOOK_S = 0.5
QUIET_S = 2.0
"""Silence after which it is worth to measure how busy the ranks are."""
AWAY_S = 10.0
HISTORY_S = 5.0
HISTORY_LINES = 20_000
FIRST_LOOK_S = 2.0
DOOR_S = 2.0
"""Dumps without frames take 30 ms; on a host that is busy with many ranks, more."""


@dataclass(slots=True)
class Watcher:
    """One thread beside the job; the job does not depend on it."""

    private: Path
    out: Path
    tell: Tell
    policy: Policy = "report"
    end_job: Callable[[], None] = lambda: None
    places: Torch = NO_PLACES
    output: Output = field(default_factory=Output)
    job_pid: int | None = None
    holds_door: bool = False
    """Whether the launcher is ours to stop for a moment."""
    crew: Crew = field(init=False)
    alarm: Alarm = field(default_factory=Alarm)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    bundle: Bundle | None = None
    token: str = "none"  # noqa: S105 - names a capture, opens nothing
    failed: bool = False
    """A rank has ended badly while the job ran."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _history_next: float = 0.0
    _history_lines: int = 0
    _count: int = 0
    _failed_attempt: int = -1

    def __post_init__(self) -> None:
        self.crew = Crew(self.private)

    def run(self) -> None:
        """The thread: a failure in here is told, and the job goes on unwatched."""
        try:
            self.save("running")
            last = time.monotonic()
            while not self._stop.is_set():
                self.pause()
                now_s = time.monotonic()
                if now_s - last > AWAY_S:
                    self.alarm.excuse(now_s)
                self.look(now_s)
                # What the look itself took (a capture, a diagnosis) is no absence.
                last = time.monotonic()
        except Exception as error:  # noqa: BLE001 - the job is worth more than its watcher
            self.tell(f"stopped watching after an error of its own ({type(error).__name__}: {error}); the job goes on")

    def stop(self) -> None:
        self._stop.set()

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
        self.lost([m for m in self.crew.ranks() if m.name in before and not m.alive])
        return ranks

    def lost(self, members: list[Member]) -> None:
        """Ranks have ended: if badly, ask the others at once, before the launcher ends them."""
        bad = [m for m in members if _ended_badly(m)]
        attempt = max((m.words.attempt for m in bad), default=-1)
        if attempt <= self._failed_attempt:
            return
        self.failed, self._failed_attempt = True, attempt
        self._count += 1
        self.token = f"lost{self._count}"
        with self.door_held(bad):
            living = [m for m in self.crew.ranks() if m.alive and not m.stopped]
            ask_quickly(self.crew, living, self.token, DOOR_S)
        self.note_alarm("crash", f"rank {', '.join(str(m.rank) for m in bad)} ended")

    @contextmanager
    def door_held(self, lost: list[Member]) -> Iterator[None]:
        """A launcher ends the other ranks within a tenth of a second: ours is stopped until they have been asked."""
        parents = {m.words.parent for m in lost} if self.holds_door else set()
        launchers = [m.words for m in self.crew.members.values() if m.alive and m.words.pid in parents]
        held = [w for w in launchers if processes.same(w.pid, w.start_ticks) and _told(w.pid, signal.SIGSTOP)]
        try:
            yield
        finally:
            for words in held:
                if processes.same(words.pid, words.start_ticks):
                    _told(words.pid, signal.SIGCONT)

    def look(self, now_s: float) -> None:
        """One look at everybody."""
        ranks = self.refresh()
        self.history(now_s, ranks)
        if not ranks:
            return
        if self.alarm.silence(now_s) > QUIET_S:
            self.crew.measure(now_s)
        elif any(m.effort is not None for m in ranks):
            self.crew.forget_effort()
        before = self.alarm.level
        level = self.alarm.observe(now_s, [seen(m) for m in ranks])
        if level == before:
            return
        if level == "suspect":
            self.suspect()
        elif level == "confirmed":
            self.confirm()
        elif self.alarms and before == "suspect":
            self.alarms[-1]["withdrawn"] = now()
            self.save("running")

    def suspect(self) -> None:
        self.note_alarm("suspect", self.alarm.why)
        self.take(FIRST_LOOK_S)
        self.save("suspect")
        # What the verdict will need is loaded while the second look is due.
        from whichrank.flows.diagnose import discover_rules
        from whichrank.report import load

        discover_rules()
        load("text")

    def confirm(self) -> None:
        """A second look shows no progress: the full capture, the verdict, and the chosen policy."""
        self.note_alarm("confirmed", self.alarm.why)
        self.tell(f"the job makes no progress: {self.alarm.why}; taking the evidence")
        self.take(ANSWER_S)
        self.judge()
        if self.policy == "end":
            self.tell("ending the job, as asked by --policy end")
            self.end_job()

    def take(self, patience_s: float) -> None:
        self._count += 1
        self.token = f"take{self._count}"
        if self.bundle is None:
            self.bundle = Bundle(self.out / "bundle")
        capture(self.crew, self.bundle, self.token, patience_s=patience_s, places=self.places)
        self.keep_output()
        self.bundle.close(self.job())

    def keep_output(self) -> None:
        """What the job printed, where that went to a file."""
        for name, data in self.output.read().items():
            if self.bundle is not None and data:
                self.bundle.add(f"logs/{name}.log", data, "output")

    def finish(self, code: int) -> None:
        """The job has ended: what it left, and a verdict if it ended badly."""
        self.crew.look()
        if code == 0 and self.diagnosis is None:
            return
        if self.diagnosis is None:
            if self.bundle is None:
                self.bundle = Bundle(self.out / "bundle")
            gather(self.crew, self.bundle, self.token, places=self.places)
            self.keep_output()
            self.bundle.close({**self.job(), "exit_code": code})
            self.judge()
        self.crew.close()

    def judge(self) -> None:
        """Diagnose the bundle, and write what came of it."""
        from whichrank.flows.diagnose import diagnose
        from whichrank.report import load

        self.diagnosis = diagnose([self.out / "bundle"], jobs=1)
        for name, file in (("json", "verdict.json"), ("markdown", "report.md")):
            text = "".join(load(name).render(self.diagnosis))
            (self.out / file).write_text(text, encoding="utf-8", errors="backslashreplace")
        if self.alarms:
            self.alarms[-1]["verdict"] = now()
        self.save("stuck" if self.alarm.level == "confirmed" else "failed")
        if self.diagnosis.verdict.category == "unknown" and self.alarm.level != "confirmed":
            return
        self.tell("".join(load("text").render(self.diagnosis)))
        self.tell(f"the evidence, verdict.json and report.md are in {self.out}")

    def note_alarm(self, level: str, why: str) -> None:
        """Remember an alarm; it is written with the next save."""
        self.alarms.append(
            {
                "level": level,
                "time": now(),
                "why": why,
                "limit_s": round(self.alarm.limit, 1),
                "silence_s": round(self.alarm.silence(time.monotonic()), 1),
            }
        )

    def job(self) -> dict[str, Any]:
        ranks = self.crew.ranks()
        return {
            "world_size": max((m.words.world for m in ranks), default=None),
            "ranks_seen": [m.rank for m in ranks],
            "attempt": max((m.words.attempt for m in ranks), default=0),
        }

    def save(self, state: str, **more: Any) -> None:
        """run.json, whole or not at all."""
        document = {"schema_version": 1, "state": state, "attempts": self.job()["attempt"] + 1, **self.job(),
                    "pid": self.job_pid,
            "private": str(self.private),
            "alarms": self.alarms, **more}  # fmt: skip
        draft = self.out / ".run.json"
        draft.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.out / "run.json")

    def history(self, now_s: float, ranks: list[Member]) -> None:
        """One short line per rank and interval, so that the time before the trouble is known too."""
        if now_s < self._history_next or self._history_lines > HISTORY_LINES or not ranks:
            return
        self._history_next = now_s + HISTORY_S
        lines = []
        for member in ranks:
            words = member.words
            row = processes.stat(words.pid)
            lines.append(
                json.dumps(
                    [
                        now(),
                        words.rank,
                        layout.PHASES[words.phase],
                        words.enqueued,
                        words.completed,
                        row.cpu_ticks if row else None,
                        _resident(words.pid),
                        words.place[-120:],
                    ]
                )
            )
        self._history_lines += len(lines)
        with (self.out / "history.jsonl").open("a", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")


def seen(member: Member) -> Seen:
    """A member as the alarm sees it."""
    words = member.words
    return Seen(
        rank=words.rank,
        phase=words.phase,
        enqueued=words.enqueued,
        completed=words.completed,
        # What a process said before its interpreter was held may be old; what the groups counted is not undone.
        waiting=words.waiting,
        alive=member.alive,
        busy=member.busy,
        stopped=member.stopped,
        beating=not member.held,
        place=words.place,
    )


def _told(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _ended_badly(member: Member) -> bool:
    if member.status is not None:
        return member.status != 0
    return member.words.phase != layout.ENDED


def _resident(pid: int) -> int | None:
    """Pages in memory."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
