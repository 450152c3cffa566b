"""A job that its scheduler starts again: what earlier starts came to, and whether one more leads anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whichrank.model.files import private_folder, replace_text
from whichrank.run.resume import decision
from whichrank.run.resume.checkpoints import Checkpoint, Found
from whichrank.run.resume.decision import Attempt, Plan
from whichrank.run.resume.slurm import Slurm

NAME = "attempts.json"
MOST_BYTES = 4 << 20
FRUITLESS = 3
"""Starts in a row that left no newer checkpoint, after which it is not queued again."""


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt, as it is kept from one start to the next."""

    started: str
    ended: str | None = None
    seconds: float = 0.0
    world: int = 1
    code: int | None = None
    cause: str = ""
    confidence: float = 0.0
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    place: str = ""
    position: int | None = None
    start: str | None = None
    newest: str | None = None


def save(out: Path, attempts: Sequence[Attempt]) -> None:
    """Keep all attempts so far; the next start of the job reads them."""
    lines = [
        Line(
            a.started, a.ended, a.seconds, a.world, a.code, a.cause, a.confidence, a.ranks, a.hosts, a.place,
            a.position, str(a.start) if a.start else None, str(a.newest) if a.newest else None,
        )
        for a in attempts
    ]  # fmt: skip
    replace_text(out / NAME, json.dumps([asdict(line) for line in lines], indent=1) + "\n", mode=0o600)


def load(out: Path) -> list[Attempt]:
    """The attempts of earlier starts; none where there is no such file, or it can't be read."""
    import msgspec

    try:
        with (out / NAME).open("rb") as stream:
            lines = msgspec.json.decode(stream.read(MOST_BYTES), type=list[Line])
    except (OSError, msgspec.MsgspecError):
        return []
    return [_attempt(number, line) for number, line in enumerate(lines)]


def _attempt(number: int, line: Line) -> Attempt:
    return Attempt(
        number, line.started, earlier=True, given=_found(line.start), left=_found(line.newest), ended=line.ended,
        seconds=line.seconds, world=line.world, code=line.code, cause=line.cause, confidence=line.confidence,
        ranks=line.ranks, hosts=line.hosts, place=line.place, position=line.position,
    )  # fmt: skip


def _found(path: str | None) -> Found:
    return Found(Checkpoint(Path(path), "") if path else None)


def same_job(slurm: Slurm | None, state: Mapping[str, Any]) -> bool:
    """Whether this run.json is of an earlier start of the same job, which its scheduler has queued again."""
    before = state.get("scheduler")
    if slurm is None or not slurm.restarts or not isinstance(before, dict):
        return False
    restarts = before.get("restarts")
    same = (before.get("job"), before.get("step") or "", before.get("task")) == (slurm.job, slurm.step, slurm.task)
    return same and isinstance(restarts, int) and restarts < slurm.restarts


def take_over(out: Path, slurm: Slurm | None, results: Sequence[str]) -> list[Attempt]:
    """What earlier starts of the same job came to; the results of the last one are put aside."""
    if slurm is None or not slurm.restarts:
        return []
    earlier = load(out)
    home = out / "attempts" / str(max(0, len(earlier) - 1))
    for name in results:
        with suppress(OSError):
            if (out / name).exists():
                private_folder(home)
                (out / name).rename(home / name)
    return earlier


def reason_not(plan: Plan, attempts: list[Attempt]) -> str:
    """Why the job is not to be queued again; "" where it is."""
    if why := decision.spent(plan, attempts) or decision.no_way_on(attempts):
        return why
    last = attempts[-FRUITLESS:]
    if plan.checkpoints is not None and len(last) == FRUITLESS and len({attempt.newest for attempt in last}) == 1:
        return f"{FRUITLESS} starts in a row left no newer checkpoint"
    return ""
