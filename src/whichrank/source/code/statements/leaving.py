"""Calls that don't come back: `sys.exit()`, and functions of the project that end in it or in an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.source.code.events import ALIKE, Attempt, Enter, Event, Exit, Fork, Leave, Risk, blocks, ending
from whichrank.source.code.index import Function
from whichrank.source.code.values import Origin, Value, differs, substitute
from whichrank.source.nodes import dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame
    from whichrank.source.code.summaries import Summary

ENDS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort", "SystemExit"})
_MOST_QUITS = 8


def ends_process(node: ast.expr) -> Exit | None:
    """`sys.exit(0)` ends this rank alone; with a status the launcher ends the others too, as after an error."""
    if not isinstance(node, ast.Call) or dotted(node.func) not in ENDS:
        return None
    if last_name(node.func) == "abort":
        return "raise"
    status = node.args[0] if node.args else None
    failed = isinstance(status, ast.Constant | ast.JoinedStr) and getattr(status, "value", 1) not in {0, None}
    return "raise" if failed else "exit"


def never_returns(frame: Frame, events: list[Event]) -> Exit | None:
    """How a call ends that was just noted as the last event, where it never comes back."""
    last = events[-1] if events else None
    if not isinstance(last, Enter) or last.param:
        return None
    target = last.function
    kind = frame.analysis.summary(target).ends
    if (
        kind is None
        or (kind == "raise" and frame.trying)
        or (target.owner is not None and frame.analysis.project.overrides(target.owner, target.name))
    ):
        return None
    return kind


def how_it_ends(function: Function, events: list[Event]) -> Exit | None:
    """Whether a function always ends in an exit or an error; one that only asks to be overridden does not count."""
    kind = ending(events)
    if kind not in {"exit", "raise"} or function.node is None:
        return None
    raised = [part.exc for part in walk(function.node) if isinstance(part, ast.Raise) and part.exc is not None]
    names = {last_name(exc.func if isinstance(exc, ast.Call) else exc) for exc in raised}
    return None if "NotImplementedError" in names else kind


def quits(function: Function, events: list[Event]) -> list[Value]:
    """Conditions under which a function ends its process quietly."""
    found: list[Value] = []
    for event in events:
        if isinstance(event, Fork) and differs(event.test):
            if (ending(event.then) == "exit") != (ending(event.other) == "exit"):
                found.append(event.test)
        elif isinstance(event, Attempt) and any(_risks(event.body)):
            for handler in event.handlers:
                if ending(handler.body) == "exit" and not (handler.types and set(handler.types) <= ALIKE):
                    origin = Origin("exception", "this rank got an exception", function.module.label, handler.line)
                    found.append(Value(frozenset({origin})))
    return found[:_MOST_QUITS]


def _risks(events: list[Event]) -> Iterator[bool]:
    for event in events:
        if isinstance(event, Risk):
            yield True
        for block in blocks(event):
            yield from _risks(block)


def quit_by(frame: Frame, summary: Summary, target: Function, bound: dict[str, Value], line: int) -> None:
    """What was called may have ended this rank: the rest of the caller is for the others."""
    for test in summary.quits:
        taint = substitute(test.taint, target, bound)
        value = Value(taint, ranks=test.ranks)
        if differs(value):
            frame.emit(Fork(value, f"{target.name}()", line, [Leave("exit", line)], []))
