"""Neighbours on a ring: `(rank + distance) % world`, whatever the distance is."""

from __future__ import annotations

import ast

from whichrank.source.code.values import WORLD, Origin, Value

_RIGHT, _LEFT = "ring: to the right", "ring: to the left"


def shift(operator: ast.operator, left: Value, right: Value) -> str:
    """The mark of a neighbour at a distance that is not known, but the same on all ranks; empty for anything else."""
    if isinstance(operator, ast.Add | ast.Sub):
        if _is_rank(left) and _unknown_distance(right):
            return _RIGHT if isinstance(operator, ast.Add) else _LEFT
        if _is_rank(right) and _unknown_distance(left):
            return _RIGHT if isinstance(operator, ast.Add) else ""
        return _mark(left) if _is_world(right) else ""
    return _mark(left) if isinstance(operator, ast.Mod) and _is_world(right) else ""


def neighbour(value: Value, rank: int) -> int | None:
    """The neighbour of a rank, as if the distance were one."""
    marks = {_RIGHT: 1, _LEFT: -1}
    found = [marks[tag] for tag in value.tags if tag in marks]
    return (rank + found[0]) % WORLD if len(found) == 1 and value.ranks is None else None


def _mark(value: Value) -> str:
    return next((tag for tag in value.tags if tag in {_RIGHT, _LEFT}), "")


def _is_rank(value: Value) -> bool:
    return value.ranks == tuple(range(WORLD)) and any(isinstance(o, Origin) and o.kind == "rank" for o in value.taint)


def _is_world(value: Value) -> bool:
    return value.ranks == (WORLD,) * WORLD


def _unknown_distance(value: Value) -> bool:
    return value.ranks is None and not any(isinstance(origin, Origin) for origin in value.taint)
