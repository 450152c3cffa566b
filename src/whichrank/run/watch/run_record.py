"""What a watched job leaves behind: its alarms, the evidence, the verdict, and run.json."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from whichrank.evidence.bundle import Bundle, now
from whichrank.model.files import private_folder
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.run.monitoring.observers import Audience
from whichrank.run.resume.scheduler import Scheduler
from whichrank.run.watch.alarm import Alarm
from whichrank.run.watch.capture import NO_PLACES, capture, gather, gather_end, keep_history
from whichrank.run.watch.job_files import Output, Torch
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.journal import Journal
from whichrank.run.watch.results_folder import watcher_entry
from whichrank.run.watch.slow.stragglers import Straggler, Stragglers
from whichrank.run.watch.slow.verdicts import held_up, short_of_data
from whichrank.run.watch.slow.waits_for_data import DataWaits, WaitsForData

Tell = Callable[[str], None]

REPORTS = (("json", "verdict.json"), ("markdown", "report.md"), ("html", "report.html"))
"""The verdict, in every form that a run leaves behind."""
NODES = "nodes"
"""The folder of the bundles of all nodes, where there are several."""
RESULTS = (*(file for _, file in REPORTS), "bundle")
_LISTED = 16
"""Ranks that are named in a line."""


@dataclass(slots=True)
class RunRecord:
    """Takes evidence, has it diagnosed, and keeps what came of it; one bundle and one verdict at a time."""

    job_processes: JobProcesses
    out: Path
    tell: Tell
    places: Torch = NO_PLACES
    output: Output = field(default_factory=Output)
    job_pid: int | None = None
    audience: Audience = field(default_factory=Audience)
    """Who else hears of looks, alarms and verdicts."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    alarm: Alarm = field(default_factory=Alarm)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    journal: Journal = field(init=False)
    diagnosis: Diagnosis | None = None
    bundle: Bundle | None = None
    token: str = "none"  # noqa: S105 - names a capture, opens nothing
    attempt: int = 0
    base: int = 0
    """Attempts of launches before this one."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """What became of the attempts before this one."""
    all_well: bool = False
    """Nothing was wrong when somebody ended the job: there is no more to gather than who was there."""
    stragglers: Stragglers = field(default_factory=Stragglers)
    straggled: dict[int, Straggler] = field(default_factory=dict)
    """Ranks that held the others up in this attempt, as last seen."""
    _told_slow: set[int] = field(default_factory=set)
    data_waits: DataWaits = field(default_factory=DataWaits)
    waited_for_data: WaitsForData | None = None
    """How the ranks of this attempt waited for data, as last seen."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables that were added to the job's environment."""
    extra: Callable[[], dict[str, Any]] = dict
    """What else run.json says."""
    node: str = ""
    """The name of this node, where several are watched together: their bundles lie side by side."""
    about_nodes: Callable[[], dict[str, Any]] = dict
    """What run.json says of the other nodes."""
    whose: str = ""
    """Part of the names of captures, where several watchers ask the same ranks."""
    _captures: int = 0
    _withdrawn: Bundle | None = None
    """Of a suspicion that had gone when somebody ended the job."""

    def __post_init__(self) -> None:
        self.journal = Journal(self.out, self.tell)
        self.audience.tell = self.tell

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

    def name_capture(self, why: str) -> None:
        """The next time that ranks are asked for something: what they answer carries this name."""
        self._captures += 1
        self.token = f"{why}{self.whose}{self._captures}"

    def take(self, patience_s: float, *, pauses: bool = False, gdb: bool = False) -> None:
        self.name_capture("take")
        bundle = self.open_bundle()
        capture(
            self.job_processes, bundle, self.token, patience_s=patience_s, places=self.places, pauses=pauses, gdb=gdb
        )
        keep_history(bundle, self.out)
        self.keep_output(bundle)
        bundle.close(self.job())

    def open_bundle(self) -> Bundle:
        if self.bundle is None:
            folder = self.case_folder() / NODES / self.node if self.node else self.case_folder()
            self.bundle = Bundle(folder, self.node or self.scheduler.node)
        return self.bundle

    def case_folder(self) -> Path:
        """What the verdict is given on; it stays where the first bundle went."""
        if self.bundle is None:
            return self.journal.evidence() / "bundle"
        return self.bundle.folder.parent.parent if self.node else self.bundle.folder

    def put_aside(self, place: str) -> Path:
        home = self.journal.evidence() / place
        private_folder(home)
        for name in RESULTS:
            if (path := self.journal.evidence() / name).exists():
                path.rename(home / name)
        return home

    def keep_output(self, bundle: Bundle) -> None:
        """What the job printed, where that went to a file; and what its scheduler said."""
        self.scheduler.keep(bundle)
        for name, data in self.output.read().items():
            if data:
                bundle.add(f"logs/{name}.log", data, "output")

    def gather(self, job_processes: JobProcesses, **more: Any) -> None:
        """What the ended have left."""
        if self._withdrawn is not None:
            self._withdrawn = None
            self.put_aside("withdrawn")
        bundle = self.open_bundle()
        if self.all_well:
            gather_end(job_processes, bundle)
        else:
            gather(job_processes, bundle, self.token, places=self.places)
        keep_history(bundle, self.out)
        self.keep_output(bundle)
        bundle.close({**self.job(), **more})

    def judge(self) -> None:
        """Diagnose the bundle, and write what came of it."""
        from whichrank.flows.diagnose.pipeline import diagnose
        from whichrank.report import load

        self.open_bundle()
        if self.alarms:
            self.alarms[-1]["evidence"] = now()
        self.diagnosis = diagnose([self.case_folder()], jobs=1, views=True)
        for name, file in REPORTS:
            self.journal.write(file, "".join(load(name).render(self.diagnosis)))
        if self.alarms:
            self.alarms[-1]["verdict"] = now()
        self.save("stuck" if self.alarm.level == "confirmed" else "failed")
        if self.diagnosis.verdict.category != "unknown" or self.alarm.level == "confirmed":
            self.tell(f"the verdict: {_in_a_line(self.diagnosis.verdict)}")
            self.tell("".join(load("text").render(self.diagnosis)))
            self.tell(f"the evidence, verdict.json and report.md are in {self.journal.elsewhere or self.out}")
        self.audience.on_verdict(self.diagnosis)

    def rehearse_verdict(self) -> None:
        """Judge what was taken so far and tell nobody: the verdict that counts comes several times as fast after it."""
        from whichrank.flows.diagnose.pipeline import diagnose
        from whichrank.report import load

        with suppress(Exception):  # told by the verdict that counts
            found = diagnose([self.case_folder()], jobs=1, views=True)
            for name, _ in REPORTS:
                "".join(load(name).render(found))

    def note_slowness(self, now_s: float, ranks: Sequence[Member]) -> None:
        """What makes the job slow is told, once: a rank that holds the others up, or data that all wait for."""
        found, waits = self.stragglers.observe(now_s, ranks), self.data_waits.observe(now_s, ranks)
        if self.alarm.level != "calm" or self.diagnosis is not None:
            return
        if found is not None and not self.data_waits.explains_the_pace:
            self.straggled[found.rank] = found
            if found.rank not in self._told_slow:
                self._told_slow.add(found.rank)
                self._tell_slow(found)
            self.audience.on_straggler(found)
        elif waits is not None:
            first, self.waited_for_data = self.waited_for_data is None, waits
            if first:
                self._tell_slow(waits)

    def _tell_slow(self, found: Straggler | WaitsForData) -> None:
        self.tell(f"slow: {found}")
        self.save("running")

    def report_slowness(self) -> None:
        """The last word on a job that ended while nothing worse was found: what made it slow."""
        slowest = max(self.straggled.values(), key=lambda each: each.lost * each.seconds, default=None)
        if slowest is None and not self.data_waits.explains_the_pace:
            slowest = self.stragglers.at_the_end()
        found = slowest or self.waited_for_data
        if found is None or self.diagnosis is not None:
            return
        from whichrank.report import load

        ranks = self.job_processes.ranks()
        self.diagnosis = held_up(found, ranks) if isinstance(found, Straggler) else short_of_data(found, ranks)
        for name, file in REPORTS:
            self.journal.write(file, "".join(load(name).render(self.diagnosis)))
        self.tell(f"the verdict: {_in_a_line(self.diagnosis.verdict)}")
        self.tell(f"{found}; verdict.json and report.md are in {self.journal.elsewhere or self.out}")
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

    def withdraw(self, went: str) -> None:
        """The alarms of this attempt don't stand any more, nor does what was said of them."""
        moment, number = now(), self.base + self.attempt
        for alarm in self.alarms:
            if alarm["level"] in ("suspect", "confirmed") and alarm["attempt"] == number:
                alarm.setdefault("withdrawn", moment)
        if self.diagnosis is not None:
            from whichrank.report import load

            cleared = _withdrawn(self.diagnosis, f"{went[0].upper()}{went[1:]}: nothing is wrong now.")
            for name, file in REPORTS:
                self.journal.write(file, "".join(load(name).render(cleared)))
        self.diagnosis = None
        self.audience.on_alarm("withdrawn", went)

    def job(self) -> dict[str, Any]:
        ranks = self.job_processes.ranks()
        return {
            "world_size": max((m.words.world for m in ranks), default=None),
            "ranks_seen": [m.rank for m in ranks],
            "attempt": max((m.words.attempt for m in ranks), default=0),
            **self.scheduler.facts(),
        }

    def save(self, state: str, **more: Any) -> None:
        """run.json."""
        told = {"state": state, "attempts": self.base + self.attempt + 1, **self.job(), **self.extra()}
        private = str(self.job_processes.folder) if self.job_processes.folder.is_dir() else None
        told |= {
            **self.scheduler.told(),
            "earlier_attempts": self.earlier,
            "pid": self.job_pid,
            "private": private,
            "watcher": watcher_entry(),
            "settings": dict(self.settings),
            "stragglers": [_straggler(each) for _, each in sorted(self.straggled.items())],
            **_waits_for_data(self.waited_for_data),
            "alarms": self.alarms,
            **self.audience.places,
        }
        self.journal.save({**told, **self.about_nodes(), **more})

    def begin_attempt(self, number: int) -> None:
        self.attempt, self.diagnosis, self.bundle = number, None, None
        self.alarm, self.stragglers, self.straggled = Alarm(), Stragglers(), {}
        self.data_waits, self.waited_for_data = DataWaits(), None

    def close_attempt(self, number: int) -> None:
        """Its results are put aside, and run.json says what became of it."""
        number += self.base
        self.put_aside(f"attempts/{number}")
        verdict = self.diagnosis.verdict if self.diagnosis else None
        told = {"cause": verdict.cause, "culprit_ranks": list(verdict.culprits.ranks)} if verdict else {}
        self.earlier.append({"attempt": number, "results": f"attempts/{number}", **told})
        self.save("running")


def _withdrawn(diagnosis: Diagnosis, summary: str) -> Diagnosis:
    """What is left of a diagnosis that does not hold any more: what had been found, as an incident."""
    verdict = Verdict("healthy", "healthy", Subject(), (), 0.8, summary)
    incidents = (diagnosis.verdict, *diagnosis.incidents)
    return Diagnosis(verdict, incidents=incidents, job=diagnosis.job, coverage=diagnosis.coverage)


def _straggler(found: Straggler) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "waits_share": round(found.own, 3),
        "others_wait_share": round(found.others, 3),
        "window_s": round(found.seconds, 1),
        "place": found.place or None,
    }


def _waits_for_data(found: WaitsForData | None) -> dict[str, Any]:
    if found is None:
        return {}
    told = {
        "share": round(found.share, 3),
        "share_before": round(found.share_before, 3),
        "steps_per_second": round(found.pace, 3),
        "steps_per_second_before": round(found.before, 3),
        "place": found.place or None,
    }
    return {"waits_for_data": told}


def _in_a_line(verdict: Verdict) -> str:
    """To be found in a log, by people and by `diagnose`, which knows by it that a report follows."""
    ranks, hosts = verdict.culprits.ranks, verdict.culprits.hosts
    who = f"host {hosts[0]}" if hosts else "nobody in particular"
    if ranks:
        listed = ", ".join(map(str, ranks))
        who = f"{len(ranks)} ranks" if len(ranks) > _LISTED else f"rank{'s' if len(ranks) > 1 else ''} {listed}"
    return f"{verdict.category}, {verdict.cause}, {who}, {round(100 * verdict.confidence)} % sure"


def load_rules() -> None:
    """What a verdict needs, before it is needed: a second of work, and more on a busy host."""
    from whichrank.flows.discovery import discover_rules
    from whichrank.report import load

    discover_rules()
    load("text")
