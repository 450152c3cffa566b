"""Branches while they are read: both arms apart, then what they have in common."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.calling import implicit
from whichrank.source.code.evaluating.choices import present
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.events import (
    Exit,
    Fork,
    exits,
)
from whichrank.source.code.statements.merging import asks_world, merged
from whichrank.source.code.values import (
    UNKNOWN,
    Taint,
    Value,
    differs,
    union,
)
from whichrank.source.nodes import dotted, last_name

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
        given = _given(node.test) if split else ()
        frame.emit(Fork(test, ast.unparse(node.test)[:160], node.lineno, then, other, given))
    if ended and not other_ended:
        return False
    if other_ended and not ended:
        frame.env, frame.paths = env, own
        return False
    frame.env = merged(test, env, frame.env, world)
    frame.paths = merged(test, own, frame.paths, world)
    return ended and other_ended


def assertion(frame: Frame, node: ast.Assert) -> bool:
    """`assert group is not None`: behind it every rank has one."""
    evaluate(frame, node.test)
    test = node.test
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        if isinstance(part, ast.Compare) and ast.unparse(part).endswith(" is not None") and (text := dotted(part.left)):
            where = frame.env if isinstance(part.left, ast.Name) else frame.paths
            where[text] = present(evaluate(frame, part.left))
    return False


def _parted(frame: Frame, taint: Taint, ways: set[Exit]) -> None:
    """Some ranks have left by these ways: what comes next is done by the others alone."""
    if "return" in ways:
        frame.left = union(frame.left, taint)
    if "continue" in ways and frame.skips:
        frame.skips[-1] = union(frame.skips[-1], taint)
    if "break" in ways and frame.loops:
        frame.loops[-1] = union(frame.loops[-1], taint)


def _given(test: ast.expr) -> tuple[tuple[str, bool], ...]:
    """The parts of `a and not b and rank == 0`: inside the arms, they are not asked again."""
    if not isinstance(test, ast.BoolOp):
        return ()
    found = []
    wanted = isinstance(test.op, ast.And)
    for part in test.values:
        truth, inner = wanted, part
        if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            truth, inner = not wanted, part.operand
        if isinstance(inner, ast.Name | ast.Attribute):
            found.append((ast.unparse(inner)[:160], truth))
    return tuple(found)


def match_statement(frame: Frame, node: ast.Match) -> bool:
    """The cases as a chain of branches; the last one is the rest where one of them always fits."""
    return _cases(frame, evaluate(frame, node.subject), node.cases, [])


def _cases(frame: Frame, subject: Value, cases: list[ast.match_case], seen: list[ast.pattern]) -> bool:
    if not cases:
        return False
    case, rest = cases[0], cases[1:]
    before = dict(frame.env)
    if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.pattern.name:
        frame.env[case.pattern.name] = subject
    if case.guard is None and _always(case.pattern, seen):
        return frame.block(case.body)
    test = _matches(subject, case.pattern)
    if case.guard is not None:
        guard = frame.aside(case.guard)[1]
        test = guard if _always(case.pattern, seen) else Value(union(test.taint, guard.taint))
    split = differs(test)
    if split:
        frame.splits += 1
        frame.control.append(test.taint)
    then, ended = frame.inside(case.body)
    env, frame.env = frame.env, before
    kept, frame.out = frame.out, []
    if split and ended:
        frame.control.pop()
        _parted(frame, test.taint, exits(then))
    other_ended = _cases(frame, subject, rest, [*seen, case.pattern])
    other, frame.out = frame.out, kept
    if split and not ended:
        frame.control.pop()
    if then or other:
        frame.emit(Fork(test, ast.unparse(case.pattern)[:80], case.body[0].lineno, then, other))
    if ended != other_ended:
        frame.env = frame.env if ended else env
    else:
        frame.env = merged(test, env, frame.env, "")
    return ended and other_ended


def _always(pattern: ast.pattern, seen: list[ast.pattern]) -> bool:
    """`case _`, `case name`, and `case False` after `case True`."""
    if isinstance(pattern, ast.MatchAs):
        return pattern.pattern is None
    both = {each.value for each in [*seen, pattern] if isinstance(each, ast.MatchSingleton)}
    return isinstance(pattern, ast.MatchSingleton) and both == {True, False} and None not in both


def _matches(subject: Value, pattern: ast.pattern) -> Value:
    """Whether a pattern fits, rank by rank where it is a plain constant, or one of several."""
    parts = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
    values = [_constant(part) for part in parts]
    if subject.ranks is None or None in values:
        return Value(subject.taint)
    return Value(
        subject.taint, ranks=tuple(any(each == value[0] for value in values if value) for each in subject.ranks)
    )


def _constant(pattern: ast.pattern) -> tuple[object] | None:
    if isinstance(pattern, ast.MatchSingleton):
        return (pattern.value,)
    if isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant):
        return (pattern.value.value,)
    return None
