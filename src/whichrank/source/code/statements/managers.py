"""`with` blocks: what context managers of the project and of libraries do around their block."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.events import Attempt, Enter, Event, First, Fork, Handler, Op, communicates, matters
from whichrank.source.code.index import Class, Function, resolve
from whichrank.source.code.values import UNKNOWN, Origin, Value, differs
from whichrank.source.nodes import dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

_FIRST = re.compile(r"(?:main|zero|master|rank_?0|rank_zero)\w{0,60}_first$|^main_process_first$")


def with_block(frame: Frame, node: ast.With | ast.AsyncWith) -> bool:
    quiet = joined = 0
    first = ""
    swallowed: tuple[str, ...] | None = None
    managers: list[tuple[Value, ast.withitem]] = []
    for item in node.items:
        calls = [n for n in walk(item.context_expr) if isinstance(n, ast.Call)]
        names = {last_name(c.func) for c in calls}
        whole = isinstance(item.context_expr, ast.Call)
        quiet += int(bool(names & {"no_sync", "no_backward_sync"}) and whole)
        joined += int(bool(names & {"join", "Join", "join_uneven_inputs"}))
        if any(_FIRST.search(name) for name in names):
            first = ast.unparse(item.context_expr)[:120]
            continue
        if isinstance(item.context_expr, ast.Call) and last_name(item.context_expr.func) == "suppress":
            swallowed = tuple(last_name(argument) for argument in item.context_expr.args)
            continue
        value, waits = _entered(frame, item)
        if waits:
            first = ast.unparse(item.context_expr)[:120]
            continue
        managers.append((value, item))
        if (types := _swallows(frame, value, item.context_expr)) is not None:
            swallowed = types
        entered = _manager(frame, value, "__enter__", item)
        if item.optional_vars is not None:
            frame.bind(item.optional_vars, entered or value)
    frame.no_sync += quiet
    frame.joined += joined
    before = frame.quiet_by
    ended = _body(frame, node, first, swallowed, [value for value, _ in managers])
    for value, item in reversed(managers):
        _manager(frame, value, "__exit__", item)
    frame.no_sync -= quiet
    frame.joined -= joined
    frame.quiet_by = before
    return ended


def _body(
    frame: Frame,
    node: ast.With | ast.AsyncWith,
    first: str,
    swallowed: tuple[str, ...] | None,
    managers: list[Value],
) -> bool:
    if first:
        events, ended = frame.inside(node.body)
        if matters(events):
            frame.emit(First(node.lineno, first, events))
        return ended
    if swallowed is not None:
        frame.trying += 1
        events, ended = frame.inside(node.body)
        frame.trying -= 1
        if matters(events):
            handler = Handler(swallowed, node.lineno, [], False)
            frame.emit(Attempt(node.lineno, events, [handler], [], node.lineno, []))
        return False
    if local := next((value for value in managers if "no_sync" in value.tags and differs(value)), None):
        events, ended = frame.inside(node.body)
        silent = [e for e in events if not (isinstance(e, Op) and e.name == "backward")]
        frame.emit(Fork(Value(local.taint), "no_sync()", node.lineno, events, silent))
        return ended
    return frame.block(node.body)


def _swallows(frame: Frame, value: Value, node: ast.expr) -> tuple[str, ...] | None:
    """The errors of its block that a manager of the project keeps to itself; none named where it keeps all."""
    if isinstance(value.thing, Class) and "itself" not in value.tags:
        door = frame.analysis.project.method(value.thing, "__exit__")
        returned = [n.value for n in walk(door.node) if isinstance(n, ast.Return)] if door and door.node else []
        return () if any(isinstance(each, ast.Constant) and each.value is True for each in returned) else None
    text = dotted(node.func) if isinstance(node, ast.Call) else ""
    found = frame.analysis.project.find(resolve(frame.function.module, text)) if text else None
    if not isinstance(found, Function) or found.node is None or "contextmanager" not in found.decorators():
        return None
    for part in walk(found.node):
        if isinstance(part, ast.Try) and any(isinstance(n, ast.Yield) for each in part.body for n in walk(each)):
            for handler in part.handlers:
                if not any(isinstance(n, ast.Raise) for each in handler.body for n in walk(each)):
                    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else []
                    single = [handler.type] if handler.type is not None and not kinds else []
                    return tuple(map(last_name, [*kinds, *single]))
    return None


def _entered(frame: Frame, item: ast.withitem) -> tuple[Value, bool]:
    """The manager, and whether some ranks wait at its door until the others are through."""
    events, value = frame.aside(item.context_expr)
    made = events[-1] if events else None
    if (
        isinstance(made, Enter)
        and "contextmanager" in made.function.decorators()
        and waits_in_turn(frame, made.function)
    ):
        frame.out += events[:-1]
        return UNKNOWN, True
    frame.out += events
    if isinstance(value.thing, Class) and "itself" not in value.tags:
        door = frame.analysis.project.method(value.thing, "__enter__")
        return value, door is not None and waits_in_turn(frame, door)
    return value, False


def waits_in_turn(frame: Frame, function: Function) -> bool:
    """Whether a manager lets some ranks wait in a collective before its block: `if rank != 0: barrier()`."""
    return any(_door(event) for event in frame.analysis.summary(function).events)


def _door(event: Event) -> bool:
    if not isinstance(event, Fork) or not differs(event.test):
        return False
    by_rank = any(isinstance(origin, Origin) and origin.kind in {"rank", "part"} for origin in event.test.taint)
    return by_rank and communicates(event.then) != communicates(event.other)


def _manager(frame: Frame, value: Value, name: str, item: ast.withitem) -> Value | None:
    """What a context manager of the project does at its start or end."""
    if not isinstance(value.thing, Class) or "itself" in value.tags:
        return None
    found = frame.analysis.project.method(value.thing, name)
    if found is None:
        return None
    frame.emit(Enter(found, item.context_expr.lineno, frame.function))
    returned = frame.analysis.summary(found).returns
    if returned.taint:
        return returned
    return value if returned.thing is value.thing or returned is UNKNOWN else returned
