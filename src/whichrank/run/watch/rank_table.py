"""What the ranks of a watched job do now, as rows; for people who look on."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.errors import UsageError
from whichrank.run.watch.capture.files import tail
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.outside import OutsideProcesses, outside_crew
from whichrank.run.watch.samples import NAME

LATE_S = 1.0
"""Others wait for a moment in every step."""
PACE_S, SHORT_S = 30.0, 10.0
"""Over which rates are taken; a shorter time without any progress says nothing about a rate."""
MOST = 4 << 20
HISTORY = 256 << 10


@dataclass(frozen=True, slots=True)
class Row:
    """One rank."""

    rank: int
    pid: int
    doing: str
    step: int
    """Steps of its optimizers; 0 where nobody counts them."""
    issued: int
    rate: float | None
    """Collectives per second, over the last half minute; None where that is not known yet."""
    step_rate: float | None
    late_s: float
    """How long others have been waiting while this one does not wait; 0 where nobody is kept waiting."""
    quiet_s: float
    place: str


class Pace:
    """How fast each rank goes: over half a minute, with what the history of the job knows from before."""

    def __init__(self, out: Path) -> None:
        self._seen: dict[int, deque[tuple[float, int, int]]] = {}
        for line in tail(out / NAME, HISTORY).splitlines()[1:]:
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                row = json.loads(line)
                moment = datetime.fromisoformat(str(row["time"]).replace("Z", "+00:00")).timestamp()
                self.note(int(row["rank"]), moment, int(row["issued"]), int(row["step"] or 0))

    def note(self, rank: int, moment: float, issued: int, steps: int) -> None:
        seen = self._seen.setdefault(rank, deque())
        if seen and (issued < seen[-1][1] or moment < seen[-1][0]):
            seen.clear()  # it was started again
        seen.append((moment, issued, steps))
        while len(seen) > 2 and moment - seen[1][0] >= PACE_S:
            seen.popleft()

    def rates(self, rank: int) -> tuple[float | None, float | None]:
        """Collectives and steps per second."""
        seen = self._seen.get(rank) or deque[tuple[float, int, int]]()
        if len(seen) < 2 or (span := seen[-1][0] - seen[0][0]) <= 0:
            return None, None
        issued, steps = seen[-1][1] - seen[0][1], seen[-1][2] - seen[0][2]
        known = issued > 0 or span >= SHORT_S
        return (issued / span if known else None), (
            steps / span if seen[-1][2] and (steps or span >= SHORT_S) else None
        )


def open_view(out: Path) -> JobProcesses:
    """The job_processes of the job whose results go to this folder."""
    state = read_state(out)
    if not state:
        raise UsageError(f"'{out}' is not the folder of a watched job", "Give what --out of whichrank run was given.")
    private, root = _private(state), state.get("pid")
    if private is None and state.get("state") != "ended" and isinstance(root, int):
        row = processes.stat(root)
        if row is not None:
            return outside_crew(root)  # nobody prepared it: what can be seen from outside
    if private is None or not private.is_dir() or state.get("state") == "ended":
        raise UsageError("this job has ended", f"What is left of it: whichrank diagnose {out}")
    return JobProcesses(private)


def following(job_processes: JobProcesses, out: Path) -> JobProcesses | None:
    """The job_processes to look at next: the same, that of the job's next launch, or none when it has ended."""
    if isinstance(job_processes, OutsideProcesses):
        return job_processes if any(m.alive for m in job_processes.members.values()) else None
    if job_processes.folder.is_dir() and (
        not job_processes.members or any(m.alive for m in job_processes.members.values())
    ):
        return job_processes
    state = read_state(out)
    private = _private(state)
    if private is not None and private != job_processes.folder and private.is_dir():
        return JobProcesses(private)
    return job_processes if state.get("state") == "restarting" else None


def _private(state: dict[str, Any]) -> Path | None:
    return Path(str(state["private"])) if state.get("private") else None


def read_state(out: Path) -> dict[str, Any]:
    return _read(out / "run.json")


def last_verdict(out: Path) -> str:
    """The last verdict in one sentence; empty where none was given."""
    verdict = _read(out / "verdict.json").get("verdict")
    if not isinstance(verdict, dict):
        return ""
    return f"{verdict.get('category')} · {verdict.get('cause')}: {verdict.get('summary')}"


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            content = json.loads(stream.read(MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def rows(job_processes: JobProcesses, pace: Pace) -> list[Row]:
    """One row per rank."""
    return rows_of(
        job_processes.look(),
        pace,
        time.time_ns(),
        job_processes if isinstance(job_processes, OutsideProcesses) else None,
    )


def rows_of(ranks: Sequence[Member], pace: Pace, now: int, outside: OutsideProcesses | None = None) -> list[Row]:
    """The same of ranks that were looked at already."""
    inside = outside is None
    waited = max((_quiet(m, now) for m in ranks if m.alive and m.words.waiting and not m.holds_gil), default=0.0)
    told = []
    for member in ranks:
        words = member.words
        if inside:
            pace.note(words.rank, now / 1e9, words.enqueued, words.steps)
        rate, step_rate = pace.rates(words.rank)
        free = not words.waiting or member.stopped or member.holds_gil
        late = waited if inside and member.alive and free and waited > LATE_S else 0.0
        operation, place = outside.seen_at(words.pid) if outside is not None else ("", words.place)
        row = Row(
            words.rank, words.pid, doing(member) if inside else _outside(member, operation), words.steps,
            words.enqueued if inside else 0, rate, step_rate, late, _quiet(member, now) if inside else 0.0, place,
        )  # fmt: skip
        told.append(row)
    return told


def _outside(member: Member, operation: str) -> str:
    """Of a rank that nobody inside tells of."""
    if not member.alive:
        return "ended"
    if member.stopped:
        return "stopped"
    if operation:
        return f"waiting in {operation}"
    return "looked at" if member.busy is None else "working" if member.busy else "idle"


def _quiet(member: Member, now_ns: int) -> float:
    """Seconds since its counters changed."""
    return max(0.0, (now_ns - member.words.changed_ns) / 1e9)


def doing(member: Member) -> str:
    """In a few words."""
    words = member.words
    if not member.alive:
        return "ended" if words.phase == layout.ENDED else "gone"
    if member.stopped:
        return "stopped"
    if member.holds_gil and words.phase >= layout.IMPORTING:  # before, nothing inside tells of itself regularly
        return "interpreter held"
    if words.phase == layout.JOINED:
        if words.flags & layout.IN_COLLECTIVE and words.operation:
            return f"waiting in {words.operation}"
        part, (place, _, function) = words.work or words.activity, words.place.rpartition(" ")
        if part or function.isidentifier():
            return f"in {part or function + '()'}"
        return f"at {place.rpartition('/')[2]}" if place else "running"
    return layout.PHASES[words.phase]
