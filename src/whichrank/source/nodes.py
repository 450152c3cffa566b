"""Syntax trees: all nodes, several times as fast as ast.walk(), and the names that nodes are written by."""

from __future__ import annotations

import ast

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def walk(tree: ast.AST) -> list[ast.AST]:
    """The node and all below it, level by level as ast.walk() gives them; without Load, Store and Del."""
    found = [tree]
    add = found.append
    for node in found:
        for name in node._fields:
            if name == "ctx":
                continue
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        add(item)
            elif isinstance(value, ast.AST):
                add(value)
    return found


def asks_for_main(test: ast.expr) -> bool:
    """`__name__ == "__main__"`."""
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in walk(test))


def own(function: ast.AST) -> list[ast.AST]:
    """The nodes of a function, without those of the functions that it defines."""
    found = [function]
    for node in found:
        if node is function or not isinstance(node, FUNCTIONS):
            found += ast.iter_child_nodes(node)
    return found


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def called_as(func: ast.expr) -> str:
    """`a.b.c` as text; a call in front of it (`Trainer().fit`) counts by its name."""
    parts: list[str] = []
    while isinstance(func, ast.Attribute):
        parts.append(func.attr)
        func = func.value
    if isinstance(func, ast.Call):
        func = func.func if isinstance(func.func, ast.Name) else ast.Name(last_name(func.func))
    parts.append(func.id if isinstance(func, ast.Name) else "")
    return ".".join(reversed(parts))


def calls_any(node: ast.AST, names: set[str] | frozenset[str]) -> bool:
    """Whether one of these is called anywhere in it."""
    return any(isinstance(part, ast.Call) and last_name(part.func) in names for part in walk(node))
