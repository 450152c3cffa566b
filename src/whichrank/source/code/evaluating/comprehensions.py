"""Comprehensions: a loop in an expression, and what it collects."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from whichrank.source.code.evaluating.choices import CARRIED
from whichrank.source.code.evaluating.containers import EACH, ONE_OF_SEVERAL, groups_of
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.evaluating.names import WRAPPERS
from whichrank.source.code.evaluating.ordering import order_of, picks
from whichrank.source.code.evaluating.types import of_types
from whichrank.source.code.events import Event, Loop
from whichrank.source.code.statements.loops import elements, turn_by_turn, turns
from whichrank.source.code.values import CLEAN, UNKNOWN, Taint, Value, functions_of, join, union
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_NUMBERS = {"int": "int64", "len": "int64", "float": "float32"}
"""The types of tensors that are made of what these give."""


def comprehension(frame: Frame, node: Comprehension) -> Value:
    """What it collects; what it calls is noted as a loop."""
    saved = dict(frame.env)
    parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    length, taint, order, source = CLEAN, CLEAN, CLEAN, UNKNOWN
    for generator in node.generators:
        source = evaluate(frame, generator.iter)
        frame.bind(generator.target, elements(frame, source, generator.iter))
        length = union(length, turns(frame, source).length)
        taint = union(taint, source.taint)
        if picks(order_of(source), generator.target, parts):
            order = union(order, order_of(source))
        for condition in generator.ifs:
            length = union(length, evaluate(frame, condition).taint, _missing(frame, condition))
    inside, groups = _groups_made(frame, node, source, parts)
    value = join(groups.values())
    if not groups:
        inside, value = frame.aside(*parts)
    if inside:
        text = ast.unparse(node.generators[0].iter)[:120]
        frame.emit(Loop("for", text, node.lineno, inside, length, Value(order=order)))
    frame.env = saved
    if isinstance(node, ast.SetComp):
        length = union(length, value.taint)  # how many different ones there are
    tags = (value.tags & CARRIED) | ({"set"} if isinstance(node, ast.SetComp) else set())
    tags |= {f"{EACH}{tag}" for tag in value.tags & WRAPPERS if "itself" not in value.tags}
    tags |= of_types([value]) | groups_of(value)
    elt = parts[-1]
    if isinstance(elt, ast.Call) and isinstance(elt.func, ast.Name) and elt.func.id in _NUMBERS:
        tags |= {f"dtype:{_NUMBERS[elt.func.id]}"}
    own = value.taint if isinstance(node, ast.GeneratorExp) and _says_kind(elt) else union(value.taint, taint)
    result = Value(union(own, length), length, frozenset(tags), holds=functions_of([value]))
    if isinstance(node, ast.DictComp):
        return result._replace(fields=groups or None)
    return result._replace(items=tuple(groups.values()) or None)


def _groups_made(
    frame: Frame, node: Comprehension, source: Value, parts: list[ast.expr]
) -> tuple[list[Event], dict[object, Value]]:
    """`[new_group(ranks) for ranks in rows]` over rows that are known: the groups one by one, by place or by key."""
    made, first = parts[-1], node.generators[0]
    makes = isinstance(made, ast.Call) and last_name(made.func) == "new_group"
    if not makes or len(node.generators) > 1 or first.ifs or not isinstance(node, ast.ListComp | ast.DictComp):
        return [], {}
    known: dict[object, Value] = {}
    events: list[Event] = []
    for place, value in enumerate(turn_by_turn(source) or ()):
        frame.bind(first.target, value)
        events, group = frame.aside(made)
        key = evaluate(frame, node.key).ranks if isinstance(node, ast.DictComp) else (place,)
        if group.ranks is None or key is None or not isinstance(key[0], int | str):
            return [], {}
        known[key[0]] = group.tagged(ONE_OF_SEVERAL)
    return (events, known) if len(known) > 1 else ([], {})  # four ranks are too few to see several groups


def _says_kind(node: ast.expr) -> bool:
    """`isinstance(part, Linear)`: what kinds of parts there are is the same on all ranks."""
    return isinstance(node, ast.Call) and last_name(node.func) in {"isinstance", "hasattr", "callable", "issubclass"}


def _missing(frame: Frame, condition: ast.expr) -> Taint:
    """`x[1] is not None` as a filter: which elements of this rank's data are there."""
    if not isinstance(condition, ast.Compare) or not isinstance(condition.left, ast.Subscript):
        return CLEAN
    none = isinstance(condition.comparators[0], ast.Constant) and condition.comparators[0].value is None
    return frame.aside(condition.left)[1].taint if none else CLEAN
