"""Comparisons, rank by rank where both sides are known."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from whichrank.source.code.values import (
    WORLD,
    WORLD_SIZE,
    Value,
    per_rank,
    union,
)

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


def within_world(ranks: tuple[Any, ...] | None, *operands: Value) -> tuple[Any, ...] | None:
    """Nothing where a number beyond the ranks played through decides: `rank < 8`, `rank // 8`."""
    if ranks is None or len(set(map(str, ranks))) > 1 or not any(operand.taint for operand in operands):
        return ranks
    for operand in operands:
        if operand.ranks is None or WORLD_SIZE in operand.tags or len(set(map(str, operand.ranks))) > 1:
            continue
        if _beyond(operand.ranks[0]):
            return None
    return ranks


def not_by_chance(ranks: tuple[Any, ...] | None, *operands: Value) -> tuple[Any, ...] | None:
    """Nothing where four ranks are too few to see a difference: `rank - rank % 8` is 0 for all of them."""
    if ranks is None or len(set(map(str, ranks))) > 1:
        return ranks
    local = any(operand.ranks is not None and len(set(map(str, operand.ranks))) > 1 for operand in operands)
    return None if local else ranks


def _beyond(value: Any) -> bool:
    if isinstance(value, list | tuple | range | set):
        return any(map(_beyond, value))
    return isinstance(value, int) and not isinstance(value, bool) and value >= WORLD


def chain(node: ast.Compare, left: Value, rights: list[Value]) -> Value:
    """`0 < rank < 3`."""
    taint = union(left.taint, *(right.taint for right in rights))
    ranks: tuple[Any, ...] | None = (True,) * WORLD
    for one, kind, other in zip([left, *rights], node.ops, rights, strict=False):
        step = per_rank(COMPARE[type(kind)], one, other)
        ranks = None if step is None or ranks is None else tuple(a and b for a, b in zip(ranks, step, strict=True))
    return Value(taint, ranks=ranks)
