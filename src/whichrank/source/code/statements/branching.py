"""Branches while they are read: both arms apart, then what they have in common."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.calling import implicit
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.events import (
    Event,
    Exit,
    Fork,
    exits,
)
from whichrank.source.code.index import last_name
from whichrank.source.code.statements.merging import asks_world, merged
from whichrank.source.code.values import (
    UNKNOWN,
    Taint,
    Value,
    differs,
    union,
)

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame


def if_statement(frame: Frame, node: ast.If) -> bool:
    if last_name(node.test) == "TYPE_CHECKING":
        return False
    test = implicit.truth(frame, evaluate(frame, node.test), node.test)
    world = asks_world(node.test)
    if world == "one":
        test = UNKNOWN  # in a world of one, nothing differs
    split = differs(test)
    before, paths = dict(frame.env), dict(frame.paths)
    if split:
        frame.splits += 1
        frame.control.append(test.taint)
    frame.alone += world == "one"
    then, ended = frame.inside(node.body)
    frame.alone += (world == "many") - (world == "one")
    env, own = frame.env, frame.paths
    frame.env, frame.paths = before, paths
    other, other_ended = frame.inside(node.orelse)
    frame.alone -= world == "many"
    if split:
        frame.control.pop()
        _parted(frame, test.taint, exits(then) ^ exits(other))
    if then or other:
        given = _given(frame, node.test) if split else ()
        frame.emit(Fork(test, ast.unparse(node.test)[:160], node.lineno, then, other, given))
    if ended and not other_ended:
        return False
    if other_ended and not ended:
        frame.env, frame.paths = env, own
        return False
    frame.env = merged(test, env, frame.env, world)
    frame.paths = merged(test, own, frame.paths, world)
    return ended and other_ended


def _parted(frame: Frame, taint: Taint, ways: set[Exit]) -> None:
    """Some ranks have left by these ways: what comes next is done by the others alone."""
    if "return" in ways:
        frame.left = union(frame.left, taint)
    if "continue" in ways and frame.skips:
        frame.skips[-1] = union(frame.skips[-1], taint)
    if "break" in ways and frame.loops:
        frame.loops[-1] = union(frame.loops[-1], taint)


def _given(frame: Frame, test: ast.expr) -> tuple[tuple[str, bool], ...]:
    """The parts of `a and not b and rank == 0` that are the same on all ranks."""
    if not isinstance(test, ast.BoolOp):
        return ()
    found = []
    wanted = isinstance(test.op, ast.And)
    for part in test.values:
        truth, inner = wanted, part
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            truth, inner = not wanted, part.operand
        if isinstance(inner, ast.Name | ast.Attribute) and not differs(frame.aside(inner)[1]):
            found.append((ast.unparse(inner)[:160], truth))
    return tuple(found)


def match_statement(frame: Frame, node: ast.Match) -> bool:
    subject = evaluate(frame, node.subject)
    arms: list[list[Event]] = []
    envs: list[dict[str, Value]] = []
    before = dict(frame.env)
    for case in node.cases:
        frame.env = dict(before)
        events, _ = frame.inside(case.body)
        arms.append(events)
        envs.append(frame.env)
    frame.env = before
    for env in envs:
        frame.env = merged(Value(subject.taint), env, frame.env, "")
    other: list[Event] = []
    for events, case in zip(reversed(arms), reversed(node.cases), strict=True):
        other = [
            Fork(_matches(subject, case.pattern), ast.unparse(case.pattern)[:80], case.body[0].lineno, events, other)
        ]
    if any(arms):
        frame.out += other
    return False


def _matches(subject: Value, pattern: ast.pattern) -> Value:
    """Whether a pattern fits, rank by rank where it is a plain constant."""
    if isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant) and subject.ranks is not None:
        return Value(subject.taint, ranks=tuple(each == pattern.value.value for each in subject.ranks))
    return Value(subject.taint)
