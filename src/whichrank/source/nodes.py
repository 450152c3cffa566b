"""All nodes of a syntax tree, several times as fast as ast.walk()."""

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


def own(function: ast.AST) -> list[ast.AST]:
    """The nodes of a function, without those of the functions that it defines."""
    found = [function]
    for node in found:
        if node is function or not isinstance(node, FUNCTIONS):
            found += ast.iter_child_nodes(node)
    return found
