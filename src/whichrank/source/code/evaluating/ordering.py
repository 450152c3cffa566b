"""The order of elements: what sorts, reverses or shuffles them differently on each rank."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whichrank.facts.collectives import collectives
from whichrank.source.code.randomness import library_of
from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, Taint, Value, union
from whichrank.source.nodes import dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

REVERSED = "reversed"
"""Marks elements that come last first."""
_IN_PLACE = frozenset({"reverse", "sort", "shuffle"})
_AS_THEY_COME = frozenset({"as_completed", "imap_unordered", "map_unordered"})
_PERMUTED = frozenset({"permutation"})


def arranged(frame: Frame, made: Call) -> Value | None:
    """Calls that change the order of elements, or that give them in an order of their own."""
    if made.name in _IN_PLACE and isinstance(made.node.func, ast.Attribute):
        _changed(frame, made)
        return None
    if made.name in _AS_THEY_COME:
        origin = Origin("time", f"{made.name}() gives results as they come", *frame.at(made.node))
        first = made.args[0] if made.args else UNKNOWN
        return first._replace(order=frozenset({origin}), ranks=None, items=None)
    if made.name in _PERMUTED and not made.keywords.get("generator"):
        drawn = _drawn(frame, made)
        return Value(drawn, order=drawn) if drawn else None
    if made.name == "sorted" and made.args and (by := _key(frame, made)):
        return made.args[0]._replace(order=by, ranks=None, items=None)
    return None


def _changed(frame: Frame, made: Call) -> None:
    """`x.reverse()`, `x.sort(key=…)`, `random.shuffle(x)`."""
    if made.name == "shuffle":
        if made.node.args and library_of(made.full):
            _set_order(frame, made.node.args[0], _drawn(frame, made))
        return
    why = union(*frame.control, _key(frame, made))
    if why and isinstance(made.node.func, ast.Attribute):
        _set_order(frame, made.node.func.value, why)


def _drawn(frame: Frame, made: Call) -> Taint:
    library = library_of(made.full)
    if not library or library in frame.analysis.seeded:
        return CLEAN
    return frozenset({Origin("random", f"{made.full}() without a seed", *frame.at(made.node))})


def _key(frame: Frame, made: Call) -> Taint:
    """Why a key of sorting differs between ranks: `key=lambda p: p.grad.norm()`, `reverse=rank % 2`."""
    reverse = made.keywords.get("reverse", UNKNOWN)
    by = next((k.value for k in made.node.keywords if k.arg == "key"), None)
    if not isinstance(by, ast.Lambda):
        return reverse.taint
    found = frame.aside(by.body)[1].taint
    return union(reverse.taint, frozenset(origin for origin in found if isinstance(origin, Origin)))


def _set_order(frame: Frame, node: ast.expr, why: Taint) -> None:
    text = dotted(node)
    where = frame.env if text in frame.env else frame.paths
    if why and text in where:
        where[text] = where[text]._replace(order=union(where[text].order, why), ranks=None, items=None)
        if text.startswith("self.") and text[5:] in frame.writes:
            frame.writes[text[5:]] = where[text]


def order_of(value: Value) -> Taint:
    """Why a loop over this value may take its elements in another order."""
    if value.tags & {"enumerate", "zip"} and value.items:
        return union(*(order_of(item) for item in value.items))
    return value.order


def other_order(one: Value, two: Value) -> bool:
    """Whether two values are the same elements in another order."""
    if (REVERSED in one.tags) != (REVERSED in two.tags):
        return True
    if one.items and two.items and len(one.items) == len(two.items):
        mine, other = [id(item) for item in one.items], [id(item) for item in two.items]
        if mine != other and len(set(mine)) > 1 and sorted(mine) == sorted(other):
            return True
        return one.items != two.items and all(one.items.count(each) == two.items.count(each) for each in one.items)
    first, second = (value.ranks[0] if value.ranks is not None else None for value in (one, two))
    if isinstance(first, list) and isinstance(second, list):
        return first != second and sorted(map(str, first)) == sorted(map(str, second))
    return False


def picks(order: Taint, target: ast.expr, body: Sequence[ast.AST]) -> bool:
    """Whether the loop variable says what is communicated: `all_reduce(x, group=g)`, `all_reduce(stats[name])`."""
    if any(isinstance(origin, Origin) and origin.kind == "time" for origin in order):
        return True  # results as they come are rarely the same data on all ranks
    if not order:
        return False
    names = {part.id for part in walk(target) if isinstance(part, ast.Name)}
    calls = (part for statement in body for part in walk(statement) if isinstance(part, ast.Call))
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in names:
            return True
        if last_name(call.func) in collectives():
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if any(_names(argument) & names for argument in given):
                return True
    return False


def _names(node: ast.expr) -> set[str]:
    """The variables that an argument is, or is a part of."""
    inner = node
    found: set[str] = set()
    while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Name):
            found.add(inner.slice.id)
        inner = inner.value
    return found | ({inner.id} if isinstance(inner, ast.Name) else set())
