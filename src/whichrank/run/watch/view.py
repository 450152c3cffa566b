"""What the ranks of a watched job do now, as rows; for people who look on."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.model import last_words as layout
from whichrank.model.errors import UsageError
from whichrank.model.last_words import Words
from whichrank.run.watch.processes import Crew, Member

LATE_S = 1.0
"""Others wait for a moment in every step."""
MOST = 4 << 20


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
    """Collectives per second since the last look; None at the first."""
    step_rate: float | None
    late_s: float
    """How long others have been waiting while this one does not wait; 0 where nobody is kept waiting."""
    quiet_s: float
    place: str


def open_view(out: Path) -> Crew:
    """The crew of the job whose results go to this folder."""
    state = read_state(out)
    if not state:
        raise UsageError(f"'{out}' is no folder of a watched job", "Give what --out of whichrank run was given.")
    private = _private(state)
    if private is None and state.get("state") != "ended":
        raise UsageError(
            "this job is watched from outside: its ranks say nothing",
            "Start it with whichrank run to see what they do.",
        )
    if private is None or not private.is_dir():
        raise UsageError("this job has ended", f"What is left of it: whichrank diagnose {out}")
    return Crew(private)


def following(crew: Crew, out: Path) -> Crew | None:
    """The crew to look at next: the same, that of the job's next launch, or none when it has ended."""
    if crew.folder.is_dir() and (not crew.members or any(m.alive for m in crew.members.values())):
        return crew
    state = read_state(out)
    private = _private(state)
    if private is not None and private != crew.folder and private.is_dir():
        return Crew(private)
    return crew if state.get("state") == "restarting" else None


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


def rows(crew: Crew, before: dict[int, Words], span_s: float) -> list[Row]:
    """One row per rank; `before` holds the words of each at the last look, and is brought up to date."""
    ranks, now = crew.look(), time.time_ns()
    waited = max((_quiet(m, now) for m in ranks if m.alive and m.words.waiting and not m.held), default=0.0)
    told = []
    for member in ranks:
        words = member.words
        old = before.get(words.rank) if span_s > 0 else None
        rate = (words.enqueued - old.enqueued) / span_s if old else None
        step_rate = (words.steps - old.steps) / span_s if old and words.steps else None
        before[words.rank] = words
        free = not words.waiting or member.stopped or member.held
        late = waited if member.alive and free and waited > LATE_S else 0.0
        row = Row(
            words.rank, words.pid, doing(member), words.steps, words.enqueued, rate, step_rate, late,
            _quiet(member, now), words.place,
        )  # fmt: skip
        told.append(row)
    return told


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
    if member.held:
        return "interpreter held"
    if words.phase == layout.JOINED:
        if words.flags & layout.IN_COLLECTIVE and words.operation:
            return f"in {words.operation}"
        return words.work or "running"
    return layout.PHASES[words.phase]
