"""Loops while they are read: their turns, and the variables behind them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.calling import implicit
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.evaluating.ordering import order_of, picks
from whichrank.source.code.events import (
    Enter,
    Event,
    Fork,
    Loop,
    exits,
    matters,
)
from whichrank.source.code.index import Class, Module
from whichrank.source.code.statements.loops import elements, turns, unrolled
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    Origin,
    Taint,
    Value,
    differs,
    join,
    union,
)
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

_TWICE = 2  # loops nested deeper than this are read once: their variables rarely carry over


def for_loop(frame: Frame, node: ast.For | ast.AsyncFor) -> bool:
    source = evaluate(frame, node.iter)
    counted = turns(frame, source)
    if (rounds := unrolled(frame.function.module, source, node)) is not None:
        for value in rounds:
            frame.bind(node.target, value)
            frame.out += frame.inside(node.body)[0]
        return False
    item = elements(frame, source, node.iter)
    known = item.items is not None or any(isinstance(origin, Origin) for origin in item.taint)
    if not known and source.ranks is None and _trains(frame.function.module, node):
        origin = Origin("data", "a batch of this rank's data", *frame.at(node))
        item = item._replace(taint=item.taint | {origin}).tagged("element")
    drawn = _drawn(frame, source, node)
    frame.loops.append(counted.length)
    frame.breaks.append([])
    frame.ran_out.append(CLEAN)
    again = len(frame.loops) <= _TWICE and not frame.analysis.gathers
    for last in (False, True) if again else (True,):
        frame.bind(node.target, item)
        events, _ = _turn(frame, node.body)
        events = [*drawn, *events]
        if last and matters(events):
            text = ast.unparse(node.iter)[:160]
            length = union(counted.length, frame.ran_out[-1])
            loop = Loop("for", text, node.lineno, events, length, joined=frame.joined > 0)
            order = order_of(source)
            order = order if picks(order, node.target, node.body) else CLEAN
            loop.test = Value(ranks=counted.ranks, tags=source.tags, order=order)
            frame.emit(loop if not source.holds else _chosen(frame, loop, source))
    left = frame.loops.pop() - counted.length
    frame.ran_out.pop()
    _after_breaks(frame)
    return _unbroken(frame, node, left)


def _after_breaks(frame: Frame) -> None:
    """Variables behind a loop: also as they are where it was left by a break."""
    for env, apart in frame.breaks.pop():
        for name, value in env.items():
            known = frame.env.get(name)
            if known is not None and known is not value:
                both = join([known, value])
                frame.env[name] = both._replace(taint=union(both.taint, apart)) if apart else both


def _unbroken(frame: Frame, node: ast.For | ast.AsyncFor | ast.While, left: Taint) -> bool:
    """The `else` of a loop: not for ranks that left it by a break."""
    if node.orelse:
        events, _ = frame.inside(node.orelse)
        if left and matters(events):
            frame.emit(Fork(Value(left), "the loop was left by a break", node.lineno, [], events))
        else:
            frame.out += events
    return False


def _drawn(frame: Frame, source: Value, node: ast.For | ast.AsyncFor) -> list[Event]:
    """What the iterator of an object of the project does for every element."""
    if not isinstance(source.thing, Class) or "itself" in source.tags:
        return []
    found = frame.analysis.project.method(source.thing, "__iter__")
    return [Enter(found, node.lineno, frame.function)] if found is not None and found is not frame.function else []


def _turn(frame: Frame, body: list[ast.stmt]) -> tuple[list[Event], bool]:
    before, paths = dict(frame.env), dict(frame.paths)
    frame.skips.append(CLEAN)
    events, ended = frame.inside(body)
    frame.skips.pop()
    for mine, old in ((frame.env, before), (frame.paths, paths)):
        for name, value in old.items():
            if mine.get(name) is not value:
                mine[name] = join([value, mine.get(name, UNKNOWN)])
    return events, ended


def while_loop(frame: Frame, node: ast.While) -> bool:
    events: list[Event] = []
    test = UNKNOWN
    frame.loops.append(CLEAN)
    frame.breaks.append([])
    frame.ran_out.append(CLEAN)
    for _ in range(2 if len(frame.loops) <= _TWICE and not frame.analysis.gathers else 1):
        head, test = frame.aside(node.test)
        test = implicit.truth(frame, test, node.test)
        frame.loops[-1] = test.taint if differs(test) else CLEAN
        body, _ended = _turn(frame, node.body)
        events = [*head, *body]
    frame.loops.pop()
    _after_breaks(frame)
    if exhausted := frame.ran_out.pop():
        test = Value(union(test.taint, exhausted))
    if matters(events):
        frame.emit(Loop("while", ast.unparse(node.test)[:160], node.lineno, events, CLEAN, test, frame.joined > 0))
    return isinstance(node.test, ast.Constant) and bool(node.test.value) and "break" not in exits(events)


def _chosen(frame: Frame, loop: Loop, source: Value) -> Event:
    """A list of callbacks that some ranks have and others lack is a choice, not uneven data."""
    taint, loop.length = loop.length, CLEAN
    if not taint or frame.analysis.all_registered(source.holds):  # each of them is judged where it is called
        return loop
    return Fork(Value(taint), loop.text, loop.line, [loop], [])


def _trains(module: Module, node: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop goes over batches: its own body, not that of a loop inside, calls backward()."""
    if isinstance(node.iter, ast.Call) and last_name(node.iter.func) in {"range", "parameters", "named_parameters"}:
        return False
    todo: list[ast.AST] = list(node.body) if module.trains else []
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Call) and last_name(part.func) == "backward":
            return True
        if not isinstance(part, ast.For | ast.While | ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(part)
    return False
