"""Where every rank stood when a rehearsal stopped, read from its record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from whichrank.model.findings import CodePlace

Key = tuple[str, str, int]
"""Operation, file and line: the same call on every rank."""


@dataclass(frozen=True, slots=True)
class Made:
    """One call of one rank."""

    op: str
    group: str
    seq: int
    signature: dict[str, Any]
    place: CodePlace | None
    via: str
    """The library's function that the user's line called."""

    @property
    def key(self) -> Key:
        place = self.place
        return (self.op, place.file if place else self.via, place.line if place else 0)

    @property
    def name(self) -> str:
        """As people call it: what the line calls, and the collective inside where that is another."""
        said = self.via.rpartition(".")[2]
        plain = said.replace("_tensor", "").replace("_into", "").replace("_single", "").replace("_object", "")
        if not said or plain.lstrip("i") in (self.op, self.op.lstrip("i")) or said in ("wrapper", "backward_"):
            return said or self.op
        return f"{said} ({self.op})"


@dataclass(frozen=True, slots=True)
class Position:
    """One rank."""

    rank: int
    state: str
    waits: str
    """What it waits for: call, init, store, sleep, poll, or nothing."""
    call: Made | None
    place: CodePlace | None
    frames: tuple[CodePlace, ...]
    history: tuple[Made, ...]
    after: tuple[Made, ...]
    error: dict[str, Any] | None
    code: int | None
    steps: int
    joined: bool
    exhausted: dict[str, Any] | None
    what: str

    @property
    def key(self) -> Key:
        if self.call is not None:
            return self.call.key
        place = self.place
        return (f"{self.state} {self.what}".strip(), place.file if place else "", place.line if place else 0)

    @property
    def coming(self) -> list[Key]:
        """What it waits for and what it would do next."""
        return [call.key for call in ([self.call] if self.call else []) + list(self.after)]


def read(record: dict[str, Any]) -> dict[int, Position]:
    """All ranks of a record."""
    after = record.get("after") or {}
    return {int(rank): _position(int(rank), told, after.get(rank) or []) for rank, told in record["ranks"].items()}


def _position(rank: int, told: dict[str, Any], after: Sequence[dict[str, Any]]) -> Position:
    waits = told["waits"] or {}
    call = made(waits["call"], waits["at"]) if waits.get("call") else None
    frames = places(waits.get("at") or told.get("running_at") or (told["error"] or {}).get("at") or [], rank)
    return Position(
        rank,
        told["state"],
        waits.get("kind", ""),
        call,
        call.place if call else (frames[0] if frames else None),
        frames,
        tuple(made(one) for one in told["history"]),
        tuple(made(one) for one in after),
        told["error"],
        told["code"],
        told["steps"],
        told["joined"],
        told["exhausted"],
        waits.get("what", ""),
    )


def made(told: dict[str, Any], waited: Sequence[Any] | None = None) -> Made:
    frames = told["at"] or waited or []
    own = places(frames)
    via = next((name for file, _, name in frames if not file), "")
    return Made(told["sig"]["op"], told["group"], told["seq"], told["sig"], own[0] if own else None, via)


def places(frames: Iterable[Sequence[Any]], rank: int | None = None) -> tuple[CodePlace, ...]:
    """The user's frames, innermost first."""
    return tuple(CodePlace(file, line, function, rank) for file, line, function in frames if file)


def strange(position: Position) -> bool:
    """Whether the rank's last call followed the one before it for the first time, while others used to follow."""
    if position.state == "ended":
        return False
    keys = [call.key for call in position.history]
    if position.call is not None and position.call.key in keys:
        last = len(keys) - 1 - keys[::-1].index(position.call.key)
    else:
        last = len(keys) - 1
    if last < 1:
        return False
    before, now = keys[last - 1], keys[last]
    followed = {keys[i + 1] for i in range(last - 1) if keys[i] == before}
    return bool(followed) and now not in followed
