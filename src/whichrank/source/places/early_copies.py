"""Copies of os.environ that a program makes for its workers before it sets what they need."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from whichrank.source._constants import Constants, returns
from whichrank.source._environ import is_environ
from whichrank.source.nodes import FUNCTIONS, last_name, walk

_DEPTH = 8
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Missed(NamedTuple):
    """A variable that is set after the copy that workers get was made."""

    name: str
    place: ast.AST
    why: str


def missed(
    tree: ast.Module,
    constants: Constants,
    environ: frozenset[str],
    own: Mapping[str, ast.AST],
    given: list[tuple[ast.expr, set[str]]],
) -> Iterator[Missed]:
    """Own: what the program sets in os.environ, with the place. Given: for each process that is started the
    expression of its environment, and the names that it is given besides."""
    inside = _functions(tree)
    held = _attributes(tree)
    copies = [(_copies(held.get(last_name(node), node), constants, environ, 0), passed) for node, passed in given]
    if not copies or not all(found for found, _ in copies):
        return  # some get os.environ as it is then
    for name, place in own.items():
        for found, passed in copies:
            late = name not in passed and all(_before(copy, place, inside, tree) for copy in found)
            if late:
                line = getattr(found[0], "lineno", 0)
                why = f"the environment of the processes was copied from os.environ before (line {line}), without it"
                yield Missed(name, place, why)
                break


def _copies(node: ast.expr, constants: Constants, environ: frozenset[str], depth: int) -> list[ast.expr]:
    """Expressions that copy os.environ for this one; empty where it is os.environ itself, or where nothing tells."""
    if depth > _DEPTH or is_environ(node, environ):
        return []
    if isinstance(node, ast.Name):
        values = constants.values_of(node)
        return _copies(values[0], constants, environ, depth + 1) if len(values) == 1 else []
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        function = constants.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is not None:
            returned = list(returns(function))
            return _copies(returned[0], constants, environ, depth + 1) if len(returned) == 1 else []
        if last_name(node.func) in {"copy", "deepcopy"} and isinstance(node.func, ast.Attribute) and not node.args:
            parts = [node.func.value]
        elif last_name(node.func) in {"dict", "copy", "deepcopy"}:
            parts = [*node.args, *(k.value for k in node.keywords if k.arg is None)]
    elif isinstance(node, ast.Dict):
        parts = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    if any(is_environ(part, environ) for part in parts):
        return [node]
    return [found for part in parts for found in _copies(part, constants, environ, depth + 1)]


def _attributes(tree: ast.Module) -> dict[str, ast.expr]:
    """What `__init__` keeps as `self.env`, where nothing else sets it."""
    found: dict[str, list[ast.expr]] = {}
    for node in walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and last_name(target.value) == "self":
            found.setdefault(target.attr, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _made_first(first: ast.AST, second: ast.AST, copy: ast.expr, tree: ast.Module) -> bool:
    """`__init__` of a class makes the copy, and another method of it sets the variable, which is not called before."""
    for owner in walk(tree):
        methods = owner.body if isinstance(owner, ast.ClassDef) else []
        if first in methods and second in methods and getattr(first, "name", "") == "__init__":
            called = [n for n in walk(first) if isinstance(n, ast.Call) and n.lineno < copy.lineno]
            return getattr(second, "name", "") not in {last_name(call.func) for call in called}
    return False


def _functions(tree: ast.Module) -> dict[int, ast.AST]:
    """Node -> the innermost function around it."""
    found: dict[int, ast.AST] = {}
    for function in walk(tree):
        if isinstance(function, FUNCTIONS):
            found.update((id(node), function) for node in walk(function) if node is not function)
    return found


def _before(copy: ast.expr, place: ast.AST, inside: Mapping[int, ast.AST], tree: ast.Module) -> bool:
    """The copy is made before that place is reached, whenever it is."""
    first, second = inside.get(id(copy)), inside.get(id(place))
    if first is None and second is not None:
        called = {
            last_name(call.func)
            for statement in tree.body
            if statement.lineno < copy.lineno and not isinstance(statement, ast.FunctionDef | ast.ClassDef)
            for call in walk(statement)
            if isinstance(call, ast.Call)
        }
        return not called & {node.name for node in walk(tree) if isinstance(node, ast.FunctionDef)}
    if first is not None and second is not None and first is not second:
        return _made_first(first, second, copy, tree)
    if first is not second:
        return False
    body = first.body if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else tree.body
    looped = any(
        isinstance(node, _LOOPS) and any(inner is copy for inner in walk(node)) for one in body for node in walk(one)
    )
    return not looped and copy.lineno < getattr(place, "lineno", 0)
