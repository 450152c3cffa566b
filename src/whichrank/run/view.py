"""What the ranks of a watched job do now, as rows; for people who look on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.model import last_words as layout
from whichrank.model.errors import UsageError
from whichrank.run.crew import Crew, Member


@dataclass(frozen=True, slots=True)
class Row:
    """One rank."""

    rank: int
    pid: int
    doing: str
    issued: int
    rate: float | None
    """Collectives per second since the last look; None at the first."""
    behind: int
    """Operations that the furthest rank has issued and this one has not."""
    quiet_s: float
    place: str


def open_view(out: Path) -> tuple[Crew, Path]:
    """The crew of the job whose results go to this folder."""
    state = read_state(out)
    private = Path(str(state.get("private", "")))
    if not state:
        raise UsageError(f"'{out}' is no folder of a watched job", "Give what --out of whichrank run was given.")
    if not private.is_dir():
        raise UsageError("this job has ended", f"What is left of it: whichrank diagnose {out}")
    return Crew(private), private


def read_state(out: Path) -> dict[str, Any]:
    try:
        content = json.loads((out / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def rows(crew: Crew, before: dict[int, int], span_s: float) -> list[Row]:
    """One row per rank; `before` holds what each had issued at the last look, and is brought up to date."""
    ranks = crew.look()
    most = max((m.words.enqueued for m in ranks), default=0)
    told = []
    for member in ranks:
        words = member.words
        rate = (words.enqueued - before[words.rank]) / span_s if words.rank in before and span_s > 0 else None
        before[words.rank] = words.enqueued
        quiet = max(0.0, (words.beat_ns - words.changed_ns) / 1e9)
        told.append(
            Row(words.rank, words.pid, doing(member), words.enqueued, rate, most - words.enqueued, quiet, words.place)
        )
    return told


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
        return f"in {words.operation}" if words.flags & layout.IN_COLLECTIVE and words.operation else "running"
    return layout.PHASES[words.phase]
