"""Sizes that the ranks make equal: shares of a number that was rounded, and what is filled up to a common size."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from whichrank.source.code.values import NO_TAGS, WORLD_SIZE, Value
from whichrank.source.nodes import dotted

_MULTIPLE = "a multiple of the number of ranks"
_REMAINDER = "what is left over by the number of ranks"
_SHARED_OUT = "as many elements for every rank"
_ROWS, _LACKING = "rows of ", "rows lacking in "
_COLUMNS = "columns"
"""Marks a place in a shape that is not the first: a filter keeps fewer rows, not fewer columns."""
_FILLED = "filled up"
"""Marks a tensor that was joined with as many rows as it lacked."""


def marks(operator: ast.operator, left: Value, right: Value) -> frozenset[str]:
    """What two numbers make: `n // world * world`, `n - n % world`, `longest - len(x)`."""
    by_world = [bool(value.tags & {WORLD_SIZE, _MULTIPLE}) for value in (left, right)]
    if isinstance(operator, ast.Mult) and any(by_world):
        return frozenset({_MULTIPLE})
    if isinstance(operator, ast.Mod) and by_world[1]:
        return frozenset({_REMAINDER})
    if isinstance(operator, ast.Sub):
        if _REMAINDER in right.tags or all(by_world):
            return frozenset({_MULTIPLE})
        if not left.taint:
            return frozenset(_LACKING + tag[len(_ROWS) :] for tag in right.tags if tag.startswith(_ROWS))
    return NO_TAGS


def cut(upper: Value) -> frozenset[str]:
    """The mark of `x[:usable]`."""
    return frozenset({_SHARED_OUT}) if _MULTIPLE in upper.tags else NO_TAGS


def even_share(base: Value, upper: Value | None, step: Value | None) -> bool:
    """Whether `x[:usable][rank::world]` or `range(rank, usable, world)` takes as many on every rank."""
    if step is None or WORLD_SIZE not in step.tags:
        return False
    return _SHARED_OUT in base.tags if upper is None else _MULTIPLE in upper.tags


def rows_of(node: ast.expr) -> frozenset[str]:
    """The mark of `len(x)`, `x.shape[0]`, `x.size(0)`."""
    return frozenset({_ROWS + text}) if (text := dotted(node)) else NO_TAGS


def place_in_shape(node: ast.Subscript) -> frozenset[str] | None:
    """The mark of `x.shape[0]`, or of columns: `x.shape[1]`, `x.shape[-1]`, `x.shape[1:]`."""
    index: ast.expr | None = node.slice.lower if isinstance(node.slice, ast.Slice) else node.slice
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    if not isinstance(index, ast.Constant) or not isinstance(index.value, int):
        return None
    if index.value > 0:
        return frozenset({_COLUMNS})
    return rows_of(node.value.value) or None if isinstance(node.value, ast.Attribute) else None


def lacking(sizes: Iterable[Value]) -> frozenset[str]:
    """The mark of a tensor that is made with as many rows as another one lacks."""
    each = [item for size in sizes for item in (size.items or (size,))]
    return frozenset(tag for item in each for tag in item.tags if tag.startswith(_LACKING))


def joined(node: ast.expr, parts: Value) -> frozenset[str]:
    """The mark of `cat([x, filler])`."""
    written = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    wanted = {_LACKING + dotted(each) for each in written}
    return frozenset({_FILLED}) if any(item.tags & wanted for item in parts.items or ()) else NO_TAGS


def asked(*values: Value) -> frozenset[str]:
    """What a comparison keeps: that it asks how many rows there are."""
    return frozenset(tag for value in values for tag in value.tags if tag.startswith((_ROWS, _LACKING)))


def filled(test: Value, one: Value, two: Value) -> Value | None:
    """`if len(x) < longest: x = cat([x, filler])`: the one that was filled up, and the other one was long enough."""
    if not asked(test):
        return None
    return next((value for value in (one, two) if _FILLED in value.tags), None)
