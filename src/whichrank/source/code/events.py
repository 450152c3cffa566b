"""What a function does that other ranks have to match, as a tree: operations, branches, loops, attempts, exits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, Taint, Value

if TYPE_CHECKING:
    from whichrank.source.code.index import Function

Exit = Literal["return", "break", "continue", "raise", "exit"]


class Op(Struct, eq=False):
    """One call of the table of collectives."""

    name: str
    kind: str
    function: Function
    line: int
    group: str = ""
    members: tuple[Any, ...] | None = None
    """The members of its group for each rank, where known."""
    root: str = ""
    reduction: str = ""
    peer: Value = UNKNOWN
    """Destination or source of a point-to-point operation."""
    message: Value = UNKNOWN
    """What a point-to-point operation sends, or receives into."""
    label: Value = UNKNOWN
    """The tag of a message."""
    tag: str = ""


class Enter(Struct, eq=False):
    """A call of a function of the project."""

    function: Function
    line: int
    caller: Function
    arguments: dict[str, Value] = field(default_factory=dict)
    param: str = ""
    """The parameter of the caller that this function was passed as."""
    groups: dict[str, str] = field(default_factory=dict)
    """Parameters that are groups of the callee's operations, with what the caller passes, as written."""


class Update(Struct, eq=False):
    """A step of an optimizer."""

    function: Function
    line: int


class Leave(Struct, eq=False):
    kind: Exit
    line: int
    empty: bool = False
    """A return without a value."""
    error: str = ""
    """The class of what is raised."""


class Fork(Struct, eq=False):
    test: Value
    text: str
    line: int
    then: list[Event]
    other: list[Event]
    given: tuple[tuple[str, bool], ...] = ()
    """Conditions that hold on all ranks where these ranks part: `not x` of `not x and rank == 0`."""


class Loop(Struct, eq=False):
    kind: Literal["for", "while"]
    text: str
    line: int
    body: list[Event]
    length: Taint = CLEAN
    """Why the number of turns may differ between ranks."""
    test: Value = UNKNOWN
    joined: bool = False
    """Inside DDP's join(): ranks may run out of data."""


class Handler(Struct, eq=False):
    types: tuple[str, ...]
    line: int
    body: list[Event]
    raises: bool


class Risk(Struct, eq=False):
    """Something that may fail on one rank alone."""

    origin: Origin
    line: int


class Attempt(Struct, eq=False):
    line: int
    body: list[Event]
    handlers: list[Handler]
    final: list[Event]
    final_line: int
    orelse: list[Event]
    calls: bool = True
    """Whether the body calls anything, and so may fail."""


class First(Struct, eq=False):
    """`with main_process_first()`: one rank goes through the block before the others."""

    line: int
    text: str
    body: list[Event]


# What says that a library lacks something, or that somebody pressed a key: the same on all ranks.
ALIKE = frozenset({
    "ImportError", "ModuleNotFoundError", "AttributeError", "NotImplementedError", "KeyboardInterrupt", "TypeError",
    "OverflowError", "GeneratorExit", "StopIteration", "NameError", "SystemExit", "PackageNotFoundError",
    "StopAsyncIteration",
})  # fmt: skip

Event: TypeAlias = "Op | Enter | Update | Leave | Fork | Loop | Attempt | First | Risk"


def matters(events: list[Event]) -> bool:
    """Whether anything in there can be out of step."""
    return any(not isinstance(event, Risk) for event in events)


def exits(events: list[Event]) -> set[Exit]:
    """Ways in which these events may leave their block, at any depth of branches."""
    found: set[Exit] = set()
    for event in events:
        if isinstance(event, Leave):
            found.add(event.kind)
        elif isinstance(event, Fork):
            found |= exits(event.then) | exits(event.other)
        elif isinstance(event, Loop):
            found |= exits(event.body) - {"break", "continue"}
        elif isinstance(event, Attempt):
            found |= exits(event.body)
            for handler in event.handlers:
                found |= exits(handler.body)
        elif isinstance(event, First):
            found |= exits(event.body)
    return found


def ending(events: list[Event]) -> Exit | None:
    """How these events end, if they never reach the end of their block."""
    for event in events:
        if isinstance(event, Leave):
            return event.kind
        if isinstance(event, Fork):
            one, two = ending(event.then), ending(event.other)
            if one is not None and two is not None:
                return one if one != "raise" else two
        if isinstance(event, First) and (inner := ending(event.body)):
            return inner
    return None


def blocks(event: Event) -> Iterator[list[Event]]:
    """The blocks inside an event."""
    if isinstance(event, Fork):
        yield event.then
        yield event.other
    elif isinstance(event, Loop | First):
        yield event.body
    elif isinstance(event, Attempt):
        yield event.body
        yield event.orelse
        yield event.final
        for handler in event.handlers:
            yield handler.body


def communicates(events: list[Event]) -> bool:
    """Whether an operation is among them, or in what they hold."""
    return any(isinstance(event, Op) or any(map(communicates, blocks(event))) for event in events)
