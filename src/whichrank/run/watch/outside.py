"""A job that nobody prepared, seen from outside: what its ranks use, and where py-spy finds them.

There are no counters of collectives here. What stands for progress is life: a rank that computes, reads or writes,
and, where py-spy may look, whose main thread is found elsewhere than before.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.evidence.collectors import tools
from whichrank.model import last_words as layout
from whichrank.run.watch.collect import crew_of
from whichrank.run.watch.job_processes import JobProcesses, Member, handle_on

LOOK_S = 1.0
FIND_S = 5.0
SPY_S = 10.0
"""Seconds between two looks at /proc, two searches for ranks, and two looks with py-spy."""
_FRAME = re.compile(r"^\s+(\S{1,200}) \((.{1,1000}):(\d{1,9})\)")
_ACROSS = ("distributed_c10d.py", "distributed/_functional_collectives.py", "distributed/rendezvous.py")
_MAIN = re.compile(r'^Thread .*"MainThread".*\n((?:    .*\n?)*)', re.MULTILINE)


@dataclass(slots=True)
class OutsideProcesses(JobProcesses):
    """The ranks below a process; their counters count signs of life."""

    root: int = 0
    why_blind: str = ""
    """Why py-spy can't look at them; empty where it can."""
    _looked: float = float("-inf")
    _found: float = float("-inf")
    _spied: float = float("-inf")
    _stacks: dict[int, str] = field(default_factory=dict)
    _halted: set[int] = field(default_factory=set)

    def look(self) -> list[Member]:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return self.ranks()
        self._looked = now
        if now - self._found > FIND_S:
            self._found = now
            for name, member in crew_of(self.root).members.items():
                if name not in self.members:
                    member.pidfd = handle_on(member.words)
                    self.members[name] = member
        for member in self.members.values():
            if member.alive:
                self.check(member)
        ranks = self.ranks()
        self._observe(now, [member for member in ranks if member.alive])
        return ranks

    def check(self, member: Member) -> None:
        super(OutsideProcesses, self).check(member)
        if not member.alive and member.status is None:  # nobody could tell how: that is no failure yet
            member.words = member.words._replace(phase=layout.ENDED)

    def measure(self, now: float) -> None:
        """Done at every look."""

    def forget_effort(self) -> None:
        """Never: what they use is all there is."""

    def _observe(self, now: float, living: list[Member]) -> None:
        super(OutsideProcesses, self).measure(now)
        if not self.why_blind and now - self._spied > SPY_S:
            self._spied = now
            self._spy(living)
        for member in living:
            words = member.words
            if words.pid in self._halted:
                member.effort = member.traffic = 0.0  # it may spin, but it does not move
            if member.busy is not False and not member.stopped:
                member.words = words._replace(
                    enqueued=words.enqueued + 1, completed=words.completed + 1, fresh_ns=time.time_ns()
                )

    def seen_at(self, pid: int) -> tuple[str, str]:
        """The function of torch.distributed that its main thread is in, and the place in the training code."""
        operation = ""
        for line in self._stacks.get(pid, "").splitlines():
            found = _FRAME.match(line)
            if found is None:
                continue
            function, file, number = found.groups()
            if file.endswith(_ACROSS):
                operation = function
            elif "site-packages" not in file and "/torch/" not in file and not file.startswith("<"):
                return operation, f"{file}:{number} {function}"
        return operation, ""

    def _spy(self, living: list[Member]) -> None:
        """A main thread that is found at the same line again does not move."""
        for member in living:
            pid = member.words.pid
            stack = "" if member.stopped else main_stack(tools.stack(pid)[0].decode("utf-8", "replace"))
            same = bool(stack) and stack == self._stacks.get(pid)
            self._stacks[pid] = stack
            (self._halted.add if same else self._halted.discard)(pid)


def outside_crew(root: int) -> OutsideProcesses:
    """The job_processes of a job that `run` did not start."""
    job_processes = OutsideProcesses(Path("/nonexistent"), root=root, why_blind="not asked yet")
    ranks = job_processes.look()
    job_processes.why_blind = tools.stack(ranks[0].words.pid)[1] if ranks else ""
    return job_processes


def main_stack(text: str) -> str:
    """The main thread, of what py-spy tells."""
    found = _MAIN.search(text)
    return found[1] if found else ""
