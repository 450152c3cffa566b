"""Start a failed job again from its newest whole checkpoint: by a new launch, or along with its own launcher.

An observer of the watcher. Where the launcher itself restarts its ranks (torch's elastic agent), each attempt gets its
checkpoint through the hook inside the ranks, and a loop that leads nowhere is ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import now
from whichrank.model.errors import UsageError
from whichrank.model.files import replace_file
from whichrank.model.verdict import Diagnosis
from whichrank.run.monitoring.observers import Silent
from whichrank.run.resume import checkpoints, decision, escalation
from whichrank.run.resume.decision import Attempt, Plan
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.worker import resume

EXCLUDED = "excluded_hosts"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Whoever sends one of these wants the job to end, not to come back."""


@dataclass(slots=True)
class Restarts(Silent):
    """All attempts of one `whichrank run`."""

    plan: Plan
    out: Path
    tell: Callable[[str], None]
    own_store: bool = False
    """Ranks that their launcher restarts must not meet in its store."""
    attempts: list[Attempt] = field(default_factory=list)
    stopped: str = ""
    """Why there is no further attempt."""
    job_processes: JobProcesses | None = None
    end_job: Callable[[], None] = lambda: None
    _agent: int = 0
    """The attempt of the launcher, as its ranks know it."""
    _began: float = 0.0

    def __post_init__(self) -> None:
        if self.plan.exclude_hosts and (why := self._left_out(_this_host())):
            raise UsageError(
                f"this host ({_this_host()}) was left out: {why}", f"Repaired? Then remove it from {self.excluded}."
            )

    @property
    def excluded(self) -> Path:
        return self.out / EXCLUDED

    @property
    def current(self) -> Attempt:
        return self.attempts[-1]

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        """Before a launch: arguments and variables that hand the newest checkpoint on."""
        self._open(self.look())
        self.job_processes, self._agent = None, 0
        return self.plan.arguments(self.current.start), {
            **self.plan.variables(self.current.start), **self._more_evidence(),
        }  # fmt: skip

    @property
    def level(self) -> escalation.Level:
        """What the launch that is due, or under way, has in addition."""
        return escalation.LEVELS[self.current.level]

    def _more_evidence(self) -> dict[str, str]:
        """The variables of this launch's level; what it costs is told."""
        before = next((a for a in reversed(self.attempts[:-1]) if not a.by_agent), None)
        if not self.plan.escalate:
            return {}
        if before is None:
            return escalation.added(self.level, os.environ)[0]
        self.current.level = escalation.next_level(before.level, before.explained_by)
        level = self.level
        found, kept = escalation.added(level, os.environ)
        if self.current.level > before.level:
            self.tell(f"the failure is unexplained: the next attempt has {level.name}. Cost: {level.cost}")
            if kept:
                self.tell(f"left as you have set them: {', '.join(kept)}")
        elif before.level and not self.current.level:
            self.tell(f"the cause is known ({before.cause}): back to normal")
        return found

    def look(self) -> checkpoints.Found:
        """The checkpoints as they are now; those that are not whole are told once for each attempt."""
        if self.plan.checkpoints is None:
            return checkpoints.Found()
        try:
            return checkpoints.find(self.plan.checkpoints)
        except Exception as error:
            why = f"can't look for checkpoints in {self.plan.checkpoints} ({type(error).__name__}: {error})"
            if not self.attempts:
                raise UsageError(why, "Can this user read all of it?") from error
            self.tell(f"{why}: the one before counts")
            return self.current.given

    def watch(self, job_processes: JobProcesses, end_job: Callable[[], None]) -> None:
        """After a launch: whose ranks these are; the hook inside them learns how to hand a checkpoint on."""
        self.job_processes, self.end_job = job_processes, end_job
        if self.plan.argument or self.plan.variable or self.own_store:
            plan = {"variable": self.plan.variable, "arguments": self.plan.arguments(Path("{path}")),
                    "launched": self.plan.arguments(self.current.start)}  # fmt: skip
            _write(job_processes.folder / resume.PLAN, json.dumps(plan))

    def on_alarm(self, level: str, why: str) -> None:  # noqa: ARG002 - an observer's call
        """A rank has ended: whoever restarts the others finds the choice of checkpoint ready."""
        if level != "crash" or self.job_processes is None:
            return
        self._close()
        agent = max((m.words.attempt for m in self.job_processes.members.values()), default=0)
        path = str(self.current.newest or "") if self.plan.argument or self.plan.variable else ""
        port = _free_port() if self.own_store else 0
        # Ranks that are started anew for another reason than a failure keep the number of the attempt.
        for number in (agent, agent + 1):
            _write(self.job_processes.folder / f"{resume.PLAN}.{number}", json.dumps({"path": path, "port": port}))

    def on_verdict(self, diagnosis: Diagnosis) -> None:
        self.current.judged(diagnosis)
        self.current.position = self._issued() or self.current.position

    def _issued(self) -> int:
        """Collectives of the furthest rank by its own last words: dumps in reserve may be some steps old."""
        if self.job_processes is None:
            return 0
        self.job_processes.look()
        words = [member.words for member in self.job_processes.members.values()]
        return max((each.enqueued for each in words if each.is_rank and each.attempt == self._agent), default=0)

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:  # noqa: ARG002 - an observer's call
        """Count the ranks; and where the launcher has started them anew, see whether that leads anywhere."""
        self.current.world = max([self.current.world, len(ranks), *(member.words.world for member in ranks)])
        agent = max((member.words.attempt for member in ranks), default=0)
        if agent <= self._agent:
            return
        self._agent = agent
        self._close()
        before = self.current
        why = decision.spent(self.plan, self.attempts) or decision.no_way_on(self.attempts)
        self._open(before.left or before.given, by_agent=True)
        self.current.world = before.world
        if why and not self.stopped:
            self.attempts.pop()  # it is ended before it has begun
            self.stopped = why
            self.tell(f"the launcher starts the job again, and it is ended: {why}")
            self.end_job()

    def again(self, code: int, *, asked: bool, outside: bool, hung: bool = False) -> bool:
        """After a launch has ended: whether to start once more; where not, `stopped` says why."""
        self._close()
        self.current.code = code
        if code == 0 and not self.stopped and not hung:
            self.current.ended, self.current.seconds = now(), time.monotonic() - self._began
            return False
        # A launcher without a handler dies of the signal by which a hang was ended.
        if asked or outside or (-code in ENDING and not hung):
            self.stopped = self.stopped or "it was ended from outside"
        self.stopped = self.stopped or decision.reason_to_stop(self.plan, self.attempts) or self._exclude()
        return not self.stopped

    def pause(self) -> bool:
        """Wait before the next launch; False when somebody ends us meanwhile."""
        seconds = decision.pause_s(self.attempts)
        newest = self.current.newest
        source = f"from {newest}" if newest is not None else "from the beginning"
        failed = f"attempt {self.current.number} failed ({self.current.cause or 'not judged'})"
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            self.tell(f"{failed}; once more in {seconds:.1f} s, {source}")
            heard = signal.sigtimedwait(ENDING, seconds)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard is not None:
            self.stopped = "it was ended from outside"
        return heard is None

    def told(self) -> dict[str, Any]:
        """As run.json has it."""
        return {
            "restart": {
                "asked": self.plan.restarts,
                "stopped": self.stopped or None,
                "gpu_hours": round(decision.used_gpu_hours(self.attempts), 4),
                "attempts": [attempt.told() for attempt in self.attempts],
            }
        }

    def _open(self, given: checkpoints.Found, *, by_agent: bool = False) -> None:
        self.attempts.append(Attempt(len(self.attempts), now(), given, by_agent=by_agent))
        self._began = time.monotonic()
        for each in given.skipped:
            self.tell(f"skipped a checkpoint that is not whole: {each}")

    def _close(self) -> None:
        """The end of the attempt; the first sign of it counts."""
        if self.current.ended is None:
            self.current.ended, self.current.seconds = now(), time.monotonic() - self._began
            self.current.left = self.look()

    def _exclude(self) -> str:
        """Leave out the host that is proven bad; a reason to stop where that is this one."""
        host = decision.convicted(self.current) if self.plan.exclude_hosts else ""
        if not host:
            return ""
        if not self._left_out(host):
            with suppress(OSError), open(self.excluded, "a", encoding="utf-8", opener=_own) as stream:
                stream.write(f"{host}\t{self.current.cause}\n")
            self.tell(f"{host} is left out from now on ({self.current.cause}); see {self.excluded}")
        return f"this host is left out ({self.current.cause})" if _short(host) == _short(_this_host()) else ""

    def _left_out(self, host: str) -> str:
        """The cause for which a host was left out."""
        try:
            with self.excluded.open(encoding="utf-8", errors="replace") as stream:
                rows = [line.split() for line in stream.read(1 << 20).splitlines() if line.strip()]
        except OSError:
            return ""
        return next((row[-1] for row in rows if _short(row[0]) == _short(host)), "")


def _write(path: Path, text: str) -> None:
    replace_file(path, text.encode("utf-8", "surrogateescape"), mode=0o600)


def _own(path: str, flags: int) -> int:
    """Never through a link that somebody else has put there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _this_host() -> str:
    return socket.gethostname()


def _short(host: str) -> str:
    return host.partition(".")[0].lower()
