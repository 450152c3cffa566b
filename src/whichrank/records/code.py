"""What reading a training program found: operations, and the places where ranks may part ways."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from whichrank.model.evidence import Ref

Shape = Literal[
    "branch", "return", "break", "continue", "exit", "loop", "while", "swallowed", "except", "finally",
    "first", "decorated", "thread", "destructor", "callback", "skipped step",
]  # fmt: skip
"""How ranks part: by a branch, by leaving early, by a loop of unequal length, by an exception on one of them…"""


class Reason(Struct, frozen=True):
    """Why a value differs between ranks."""

    kind: str
    """rank, part, host, time, random, file, queue, memory, data, exception, uneven, order."""
    what: str
    ref: Ref


class Operation(Struct, frozen=True):
    """One call that other ranks have to match."""

    name: str
    kind: str
    group: str
    """The group as written; empty for the default group."""
    ref: Ref
    detail: str = ""
    """Root or reduction, where the arms of a branch differ in it only."""


class Parting(Struct, frozen=True):
    """A place where some ranks do operations that others don't."""

    shape: Shape
    reasons: tuple[Reason, ...]
    at: Ref
    """The condition, the loop, the handler."""
    test: str
    """The condition as written."""
    here: tuple[Operation, ...]
    """What the ranks on this side do."""
    there: tuple[Operation, ...]
    """What the others do."""
    concerned: Operation
    via: tuple[Ref, ...] = ()
    """Calls between the condition and the operation."""
    doers: int | None = None
    """How many of four ranks do the operation, where that is known."""


class Disagreement(Struct, frozen=True):
    """One operation that ranks call with different arguments."""

    about: Literal["root", "op", "dtype", "size", "group"]
    operation: Operation
    reasons: tuple[Reason, ...]
    said: str


class Pairing(Struct, frozen=True):
    """Point-to-point operations that can't all finish, from playing up to four ranks through."""

    shape: Literal["cycle", "unmatched"]
    operation: Operation
    others: tuple[Operation, ...]
    said: str


class Habit(Struct, frozen=True):
    """Something that is not an operation out of step, but asks for trouble."""

    what: str
    """no set_epoch, no timeout, no device ids, never destroyed, unseeded, local schedule, set late…"""
    ref: Ref
    said: str
    others: tuple[Ref, ...] = ()


class ProgramCase(Struct):
    """All that the rules on code are asked about."""

    partings: list[Parting] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    pairings: list[Pairing] = field(default_factory=list)
    habits: list[Habit] = field(default_factory=list)
    operations: int = 0
    """How many calls of collectives were read: without any, nothing is clear."""
