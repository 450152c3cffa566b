"""Dictionaries that a program keeps for their names: to look something up, to warn of it, to take it out."""

from __future__ import annotations

import ast

from whichrank.source._constants import Constants
from whichrank.source.nodes import walk

_VIEWS = frozenset({"items", "keys", "values", "get"})
_TAKES_OUT = frozenset({"pop", "unsetenv", "discard", "remove"})
_SAME = frozenset({"set", "frozenset", "sorted", "list", "tuple"})


def names_only(tree: ast.AST, constants: Constants) -> frozenset[int]:
    """The ids of dictionaries with a name that is used for nothing but that: they set nothing."""
    above = {child: node for node in walk(tree) for child in ast.iter_child_nodes(node)}
    uses: dict[str, list[ast.Name]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(node)
    return frozenset(
        id(values[0])
        for name, values in constants.assigned.items()
        if len(values) == 1 and isinstance(values[0], ast.Dict) and name in uses
        if all(_sets_nothing(use, above) for use in uses[name])
    )


def _sets_nothing(use: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """`x in NAMES`, and a loop over them that takes each out of something."""
    node = use
    parent = above.get(node)
    while parent is not None and _passes_on(parent, node):
        node, parent = parent, above.get(parent)
    if isinstance(parent, ast.Compare):
        return node in parent.comparators and all(isinstance(op, ast.In | ast.NotIn) for op in parent.ops)
    return isinstance(parent, ast.For) and node is parent.iter and any(_takes_out(inner) for inner in walk(parent))


def _passes_on(parent: ast.AST, node: ast.AST) -> bool:
    """`NAMES.items()`, `set(NAMES)`: the same names."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in _VIEWS
    if not isinstance(parent, ast.Call):
        return False
    return parent.func is node or (isinstance(parent.func, ast.Name) and parent.func.id in _SAME)


def _takes_out(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKES_OUT
    return called or isinstance(node, ast.Delete)
