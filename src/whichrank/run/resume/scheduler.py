"""The scheduler that a job runs under: which job it is there, and why it is ended, when a signal says that it is."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import Bundle
from whichrank.model.moments import rfc3339_ns
from whichrank.run.resume import slurm
from whichrank.run.resume.slurm import Slurm
from whichrank.run.watch.capture.aside import Aside
from whichrank.run.watch.job_files import Output

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WARNING = (signal.SIGUSR1, signal.SIGUSR2)
"""What sites use to announce the end of a job (`sbatch --signal`)."""
REPEATED_S = 10.0
"""Slurm sends the same signal twice at the end of a job; whoever is told twice may take the second for impatience."""
SENDER = "slurmstepd"
NEARLY_S = 120.0
ANNOUNCED = "end announced"


@dataclass(frozen=True, slots=True)
class Heard:
    """A signal from outside."""

    number: int
    sender: str
    """The program that sent it; "" where it is not of this host, or of another container."""
    time_ns: int

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name


@dataclass(slots=True)
class Scheduler:
    """Asked by the thread that hears signals, and by the watcher."""

    slurm: Slurm | None = None
    in_container: bool = False
    """In a pod: whoever ends it is not seen from here."""
    requeues: bool = False
    """Whether a warning is ours to act on."""
    ended: Heard | None = None
    warned: Heard | None = None
    _at_start: Aside[dict[str, str]] | None = None
    _at_end: Aside[dict[str, str]] | None = None
    _last: dict[int, float] = field(default_factory=dict)

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ, *, requeues: bool = False) -> Scheduler:
        return cls(slurm.here(environ), "KUBERNETES_SERVICE_HOST" in environ, requeues)

    def begin(self) -> None:
        """Ask for the limit of the job; one of all its tasks does, for a controller serves thousands."""
        known = self.slurm
        if known is not None and known.first and self._at_start is None:
            self._at_start = Aside(lambda: slurm.ask(known.job))

    def hear(self, number: int, sender: int) -> bool:
        """A signal has come; whether it is to be passed on to the job."""
        heard, now = Heard(number, _program(sender), time.time_ns()), time.monotonic()
        repeated = heard.sender == SENDER and now - self._last.get(number, float("-inf")) < REPEATED_S
        self._last[number] = now
        if number in ENDING and self.ended is None:
            self.ended = heard
            self._ask_why()
        elif number in WARNING and self.warned is None:
            self.warned = heard
        return not repeated and not (number in WARNING and self.requeues)

    def _ask_why(self) -> None:
        known = self.slurm
        if known is not None and known.first:
            self._at_end = Aside(lambda: slurm.ask(known.job))

    @property
    def announced(self) -> bool:
        """Whether the end was announced, and is ours to bring about."""
        return self.requeues and self.warned is not None and self.ended is None

    @property
    def leaving(self) -> bool:
        """Whether somebody outside ends the job: a scheduler, or a person."""
        return self.ended is not None or self.announced

    def ends_it(self, code: int | None) -> bool:
        """Whether the end is the scheduler's doing, and not that of a person at a terminal."""
        if self.ended is not None:
            if self.ended.number == signal.SIGINT and not self.ended.sender:
                return False  # from the terminal
            return self.slurm is not None or (self.in_container and not self.ended.sender)
        if self.warned is None or self.slurm is None:
            return False
        # A launcher that knows nothing of the signal that announces the end is ended by it.
        return self.requeues or code in (-self.warned.number, 128 + self.warned.number)

    @property
    def limit_ns(self) -> int | None:
        """When the time of the job is over."""
        if self.slurm is None or self.slurm.ends_ns is not None:
            return self.slurm.ends_ns if self.slurm is not None else None
        return slurm.limit_ns(_answer(self._at_start, 0.0))

    @property
    def nearly_over(self) -> bool:
        """Whether the time of the job is all but over: from the end on there are seconds left to say something."""
        limit = self.limit_ns
        return limit is not None and time.time_ns() > limit - NEARLY_S * 1e9

    @property
    def node(self) -> str:
        """What the scheduler calls this host; "" without one."""
        return self.slurm.node if self.slurm is not None else ""

    def reason(self, wait_s: float = 0.0) -> str:
        """Why the job is ended, in the scheduler's words; "" where nobody says, or not yet."""
        if self.slurm is None or self.ended is None:
            return ANNOUNCED if self.warned is not None else ""
        known = replace(self.slurm, ends_ns=self.limit_ns)
        return slurm.reason(known, _answer(self._at_end, wait_s), self.ended.time_ns)

    # -- what is written down

    def facts(self) -> dict[str, Any]:
        """For run.json and the manifest of a bundle; empty without a scheduler."""
        if self.slurm is None:
            return {}
        return {"scheduler": replace(self.slurm, ends_ns=self.limit_ns).told()}

    def told(self) -> dict[str, Any]:
        """Who has ended the job, for run.json; empty while nobody has."""
        heard = self.ended or self.warned
        if heard is None:
            return {}
        kind = "ended_by" if self.leaving else "warned_by"
        return {kind: {"signal": heard.name, "sender": heard.sender or None, "time": rfc3339_ns(heard.time_ns),
                       "reason": self.reason() or None}}  # fmt: skip

    def keep(self, bundle: Bundle) -> None:
        """The same as evidence."""
        if self.slurm is None and not self.ends_it(None):
            return
        document: dict[str, Any] = {"whichrank_scheduler": 1, "host": bundle.host, **self.facts()}
        heard = self.ended or self.warned
        if heard is not None and self.ends_it(-heard.number):
            limit = self.limit_ns
            document["ended"] = {
                "signal": heard.number, "signal_name": heard.name, "sender": heard.sender, "time_ns": heard.time_ns,
                "reason": self.reason(slurm.ASK_S), "limit_ns": limit,
            }  # fmt: skip
        bundle.add("host/scheduler.json", (json.dumps(document, indent=1) + "\n").encode(), "scheduler")

    def add_log(self, output: Output) -> None:
        """The file that Slurm writes the job's output to: what tasks print goes there and past this process."""
        if self.slurm is None or not self.slurm.first or not self.slurm.step:
            return
        said = _answer(self._at_start, slurm.ASK_S)
        for name in dict.fromkeys((said.get("StdOut", ""), said.get("StdErr", ""))):
            if name.startswith("/") and name != "/dev/null":
                output.also(f"slurm{len(output.files) or ''}", Path(name))


def _answer(asked: Aside[dict[str, str]] | None, limit_s: float) -> dict[str, str]:
    if asked is not None:
        with suppress(Exception):  # a controller that does not answer
            return asked.result(limit_s)
    return {}


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() if pid > 0 else ""
    except OSError:
        return ""
