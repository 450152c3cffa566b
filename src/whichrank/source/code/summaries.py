"""What is kept of the functions that were read: a summary of each, and calls that are looked at again at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from whichrank.source.code.events import Event, Exit, Op
from whichrank.source.code.values import CLEAN, UNKNOWN, Taint, Value

if TYPE_CHECKING:
    from whichrank.facts.collectives import Collective
    from whichrank.source.code.index import Function, Module


class Summary(Struct):
    """What a function does, as far as its callers care."""

    events: list[Event] = field(default_factory=list)
    returns: Value = UNKNOWN
    turns: Taint = CLEAN
    generator: bool = False
    writes: dict[str, Value] = field(default_factory=dict)
    env: dict[str, Value] = field(default_factory=dict)
    fills: dict[str, Taint] = field(default_factory=dict)
    counts: set[str] = field(default_factory=set)
    """Attributes of its object that it counts up."""
    grows: set[str] = field(default_factory=set)
    """Containers of its object that it puts something into."""
    splits: int = 0
    """How many of its conditions may differ between ranks."""
    ends: Exit | None = None
    """How it ends the process, where it never returns."""
    asks_for: str = ""
    """The parameter that names the variable of the environment which it reads."""
    quits: list[Value] = field(default_factory=list)
    """Conditions under which it ends this rank quietly."""
    groups: set[str] = field(default_factory=set)
    """Parameters that are groups of its operations."""
    seedings: set[tuple[str, Taint]] = field(default_factory=set)
    """Seeds that it sets, with the library and why they may differ."""


class Noted(Struct):
    """A collective with the arguments that all ranks have to agree on."""

    op: Op
    root: Value
    reduction: Value
    payload: Value
    spec: Collective


class Later(Struct):
    """A function that another thread, a signal or the interpreter's end calls."""

    kind: str
    target: Function
    function: Function
    line: int


class Schedule(Struct):
    """A schedule of the learning rate, with why its length may differ."""

    module: Module
    line: int
    taint: Taint
