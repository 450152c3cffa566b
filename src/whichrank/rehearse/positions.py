"""Where every rank stood when a rehearsal stopped, read from its record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
        if said in ("_wrapped_call_impl", "_call_impl"):
            return f"forward ({self.op})"
        if said in ("wrapper", "inner", "decorate_context", "_fn"):
            return self.op
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
    """When its data loader ran out last."""
    what: str
    calls: int = 0
    caught: tuple[dict[str, Any], ...] = ()

    open: tuple[Made, ...] = ()
    """Calls that it has handed in and that are not complete, oldest first."""
    left_at: tuple[CodePlace, ...] = ()
    """Where it called sys.exit, if it did."""

    @property
    def times_out(self) -> int:
        """How often its data loaders have run out."""
        return int(self.exhausted["times"]) if self.exhausted else 0

    @property
    def key(self) -> Key:
        if self.call is not None:
            return self.call.key
        place = self.place
        return (f"{self.state} {self.what}".strip(), place.file if place else "", place.line if place else 0)

    @property
    def coming(self) -> list[Key]:
        """What it has started and not finished, and what it would do next."""
        started = list(self.open) or ([self.call] if self.call else [])
        return [call.key for call in (*started, *self.after)]


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
        told["calls"],
        tuple(told.get("caught") or ()),
        tuple(made(one) for one in told["open"]),
        places(told.get("left_at") or [], rank),
    )


def made(told: dict[str, Any], waited: Sequence[Any] | None = None) -> Made:
    frames = told["at"] or waited or []
    own = places(frames)
    via = next((name for file, _, name in frames if not file), "")
    return Made(told["sig"]["op"], told["group"], told["seq"], told["sig"], own[0] if own else None, via)


def places(frames: Iterable[Sequence[Any]], rank: int | None = None) -> tuple[CodePlace, ...]:
    """The user's frames, innermost first."""
    return tuple(CodePlace(file, line, function, rank) for file, line, function in frames if file)


RECENT = 6
"""How many of a rank's last steps from call to call are looked at."""


class Ways:
    """The steps from one call to the next that the ranks have made."""

    def __init__(self, positions: dict[int, Position]) -> None:
        self.steps = {rank: _steps(position) for rank, position in positions.items()}
        self.world = len(positions)
        self.support: dict[tuple[Key, Key], int] = {}
        for steps in self.steps.values():
            for step in set(steps):
                self.support[step] = self.support.get(step, 0) + 1
        self.usual: dict[Key, int] = {}
        for (before, _), count in self.support.items():
            self.usual[before] = max(self.usual.get(before, 0), count)

    def strange(self, rank: int) -> bool:
        """Whether a rank recently went a way that few ranks ever went, and it never before, where most go another."""
        steps = self.steps[rank]
        for index in range(max(0, len(steps) - RECENT), len(steps)):
            step = steps[index]
            few = self.support[step] <= self.world / 2 and self.usual[step[0]] > self.support[step]
            if few and step not in steps[:index] and any(one[0] == step[0] for one in steps[:index]):
                return True
            if few and not steps[:index] and self.usual[step[0]] > self.world / 2:
                return True
        return False


def _steps(position: Position) -> list[tuple[Key, Key]]:
    keys = [call.key for call in position.history]
    return list(pairwise(keys))
