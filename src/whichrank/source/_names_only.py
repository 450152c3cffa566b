"""Dictionaries that a program keeps for their names: to look something up, to warn of it, to take it out."""

from __future__ import annotations

import ast

from whichrank.source._constants import Constants
from whichrank.source.nodes import last_name, walk

_VIEWS = frozenset({"items", "keys", "values", "get"})
_TELLS = frozenset({
    "print", "pop", "unsetenv", "discard", "remove", "get", "getenv", "format", "join", "write", "debug", "info",
    "warning", "warn", "error", "add_argument", "str", "repr", "len", "exit", "ljust", "upper", "lower",
})  # fmt: skip
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
    """`x in NAMES`, and a loop over them that only tells of each or takes it out of something."""
    node = use
    parent = above.get(node)
    while parent is not None and _passes_on(parent, node):
        node, parent = parent, above.get(parent)
    if isinstance(parent, ast.Compare):
        return node in parent.comparators and all(isinstance(op, ast.In | ast.NotIn) for op in parent.ops)
    around = above.get(parent) if isinstance(parent, ast.comprehension) else parent
    if not isinstance(around, ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return False
    return node is getattr(parent, "iter", None) and not any(_may_set(inner) for inner in walk(around))


def _passes_on(parent: ast.AST, node: ast.AST) -> bool:
    """`NAMES.items()`, `set(NAMES)`: the same names."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in _VIEWS
    if not isinstance(parent, ast.Call):
        return False
    return parent.func is node or (isinstance(parent.func, ast.Name) and parent.func.id in _SAME)


def _may_set(node: ast.AST) -> bool:
    """An element that is assigned, a call that may hand the name on, a text such as NAME=VALUE."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        return name not in _TELLS | _VIEWS | _SAME
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and "=" in node.value
    if isinstance(node, ast.Tuple):
        return isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.DictComp | ast.Yield)
