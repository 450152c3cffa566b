"""What is kept of the functions that were read: a summary of each, and calls that are looked at again at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from whichrank.source.code.events import Event, Exit, Op
from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, Taint, Value

if TYPE_CHECKING:
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


class Notes(Struct):
    """What one reading of the whole project notes, to be judged when everything is known."""

    seedings: set[tuple[str, Taint]] = field(default_factory=set)
    """Seeds that are set, with the library and why they may differ."""
    past_wrapper: list[tuple[Function, int]] = field(default_factory=list)
    """Backward passes of what was computed past a wrapper."""
    inner_calls: list[tuple[Function, int]] = field(default_factory=list)
    """Calls of the module inside a wrapper."""
    foreign_roots: list[tuple[Op, Origin, str]] = field(default_factory=list)
    """Operations whose root is a member of one of several groups only."""
    types_apart: list[tuple[Op, Origin, str]] = field(default_factory=list)
    """Operations that receive into tensors of another type than they send."""
    noted: list[Noted] = field(default_factory=list)
    laters: list[Later] = field(default_factory=list)
    threaded: list[Op] = field(default_factory=list)
    """Collectives of libraries that another thread is told to call."""
    schedules: list[Schedule] = field(default_factory=list)
    local_groups: list[tuple[Op, Taint]] = field(default_factory=list)
    """Groups whose members every rank works out for itself."""
    other_groups: list[tuple[Op, Taint, str]] = field(default_factory=list)
    """Operations whose group differs between ranks, with a member that uses another one."""
    half_splits: list[tuple[Op, Taint]] = field(default_factory=list)
    """all_to_all with sizes of this rank's own on one side only."""
    operations: int = 0
