"""Where a syntax tree puts something into os.environ."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

Pair: TypeAlias = tuple[str, ast.expr, ast.AST]
"""Name, value, and the node whose line is meant."""


def environ_names(tree: ast.AST) -> frozenset[str]:
    """Names that mean os.environ in this file: `environ` by import, or by plain assignment."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for alias in node.names
        if alias.name == "environ"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_environ(node.value, frozenset()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


def is_environ(node: ast.AST, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "environ"
        and isinstance(node.value, ast.Name)
        and node.value.id in {"os", "_os"}
    )


def sets(node: ast.AST, names: frozenset[str]) -> Iterator[Pair]:
    """The variables that one statement or call puts into this process's environment."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and is_environ(target.value, names):
                yield from named(target.slice, node.value, node)
        if isinstance(node, ast.AugAssign) and is_environ(node.target, names):
            yield from pairs(node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _called(node, node.func, names)


def _called(call: ast.Call, func: ast.Attribute, names: frozenset[str]) -> Iterator[Pair]:
    putenv = func.attr == "putenv" and isinstance(func.value, ast.Name) and func.value.id == "os"
    if putenv or (func.attr == "setdefault" and is_environ(func.value, names)):
        if len(call.args) == 2:
            yield from named(call.args[0], call.args[1], call)
    elif func.attr == "update" and is_environ(func.value, names):
        for argument in call.args:
            yield from pairs(argument)
        yield from ((k.arg, k.value, k.value) for k in call.keywords if k.arg)


def named(key: ast.expr, value: ast.expr, node: ast.AST) -> Iterator[Pair]:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield key.value, value, node


def pairs(node: ast.expr) -> Iterator[Pair]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                yield from named(key, value, key)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        yield from ((k.arg, k.value, k.value) for k in node.keywords if k.arg)
