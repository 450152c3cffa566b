"""Where a syntax tree puts something into os.environ."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from whichrank.source._constants import Constants
from whichrank.source.nodes import walk

Pair: TypeAlias = tuple[str, ast.expr, ast.AST]
"""Name, value, and the node whose line is meant."""
_DEEPEST = 4


def environ_names(tree: ast.AST) -> frozenset[str]:
    """Names that mean os.environ in this file: `environ` by import, or by plain assignment."""
    names = {
        alias.asname or alias.name
        for node in walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for alias in node.names
        if alias.name == "environ"
    }
    for node in walk(tree):
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


def sets(node: ast.AST, names: frozenset[str], constants: Constants | None = None) -> Iterator[Pair]:
    """The variables that one statement or call puts into this process's environment."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and is_environ(target.value, names):
                yield from _keyed(target.slice, node.value, node, constants)
        if isinstance(node, ast.AugAssign) and is_environ(node.target, names):
            yield from _resolved(node.value, constants)
    elif isinstance(node, ast.For) and constants is not None:
        yield from _loop(node, names, constants)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _called(node, node.func, names, constants)


def sets_by_name(node: ast.AST, names: frozenset[str]) -> bool:
    """Whether a statement sets a variable whose name is computed: `os.environ[field.name] = …`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(target, ast.Subscript):
        return is_environ(target.value, names) and not isinstance(target.slice, ast.Constant)
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in {"setdefault", "update"} and is_environ(call.func.value, names) and bool(call.args)


def _keyed(key: ast.expr, value: ast.expr, node: ast.AST, constants: Constants | None) -> Iterator[Pair]:
    """A literal key, or a name that stands for one."""
    if constants is not None and isinstance(key, ast.Name):
        key = constants.resolve(key)
    yield from named(key, value, node)


def _resolved(node: ast.expr, constants: Constants | None) -> Iterator[Pair]:
    yield from pairs(constants.resolve(node) if constants is not None else node, constants)


def _loop(node: ast.For, names: frozenset[str], constants: Constants) -> Iterator[Pair]:
    """`for k, v in SETTINGS.items(): os.environ[k] = v`, or over the names alone, or over pairs."""
    if set_in_loop(node, names) is None:
        return
    method = node.iter.func if isinstance(node.iter, ast.Call) else None
    named = isinstance(method, ast.Attribute) and method.attr in {"items", "keys"}
    source = constants.resolve(method.value if isinstance(method, ast.Attribute) and named else node.iter)
    yield from pairs(source, constants)
    for each in source.elts if isinstance(source, ast.List | ast.Tuple) else ():
        if isinstance(each, ast.Tuple) and len(each.elts) == 2:
            yield from _keyed(each.elts[0], each.elts[1], each, constants)


def set_in_loop(node: ast.For, names: frozenset[str]) -> ast.AST | None:
    """The statement or call in a loop that puts its first variable into the environment as a name."""
    key = node.target.elts[0] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target
    for inner in walk(node):
        target = inner.targets[0] if isinstance(inner, ast.Assign) else None
        if isinstance(target, ast.Subscript) and is_environ(target.value, names) and _same(target.slice, key):
            return inner
        calls = isinstance(inner, ast.Call) and _method(inner.func) in {"setdefault", "putenv"} and bool(inner.args)
        if calls and isinstance(inner, ast.Call) and _same(inner.args[0], key):
            return inner
    return None


def _method(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else ""


def _same(a: ast.expr, b: ast.expr) -> bool:
    return isinstance(a, ast.Name) and isinstance(b, ast.Name) and a.id == b.id


def _called(call: ast.Call, func: ast.Attribute, names: frozenset[str], constants: Constants | None) -> Iterator[Pair]:
    putenv = func.attr == "putenv" and isinstance(func.value, ast.Name) and func.value.id == "os"
    if putenv or (func.attr == "setdefault" and is_environ(func.value, names)):
        if len(call.args) == 2:
            yield from _keyed(call.args[0], call.args[1], call, constants)
    elif func.attr == "update" and is_environ(func.value, names):
        for argument in call.args:
            yield from _resolved(argument, constants)
        yield from ((k.arg, k.value, k.value) for k in call.keywords if k.arg)


def removed(tree: ast.AST, names: frozenset[str]) -> dict[str, int]:
    """Variables that are taken out of os.environ again, with the line of the last removal."""
    found: dict[str, int] = {}
    for node in walk(tree):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Delete):
            keys = [t.slice for t in node.targets if isinstance(t, ast.Subscript) and is_environ(t.value, names)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"pop", "unsetenv"}
            and is_environ(node.func.value, names)
        ):
            keys = node.args[:1]
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = max(found.get(key.value, 0), getattr(node, "lineno", 0))
    return found


def named(key: ast.expr, value: ast.expr, node: ast.AST) -> Iterator[Pair]:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield key.value, value, node


def _picked(holder: ast.expr, key: ast.expr) -> Iterator[ast.expr]:
    """The dictionary that `PROFILES[name]` means, or all that it may be."""
    for each, value in zip(holder.keys, holder.values, strict=True) if isinstance(holder, ast.Dict) else ():
        if not isinstance(key, ast.Constant) or (isinstance(each, ast.Constant) and each.value == key.value):
            yield value


def pairs(node: ast.expr, constants: Constants | None = None, depth: int = 0) -> Iterator[Pair]:
    """What a dictionary holds, as a display, by `dict(…)`, or merged of several: `{**a, **b}`, `a | b`, `a or b`."""
    if depth > _DEEPEST:
        return
    inner: list[ast.expr] = []
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                yield from named(key, value, key)
            else:
                inner.append(value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        yield from ((k.arg, k.value, k.value) for k in node.keywords if k.arg)
        inner = [*node.args, *(k.value for k in node.keywords if k.arg is None)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        inner = [node.left, node.right]
    elif isinstance(node, ast.Subscript):
        inner = list(_picked(constants.resolve(node.value) if constants is not None else node.value, node.slice))
    elif isinstance(node, ast.BoolOp):
        inner = node.values
    elif isinstance(node, ast.IfExp):
        inner = [node.body, node.orelse]
    for each in inner:
        yield from pairs(constants.resolve(each) if constants is not None else each, constants, depth + 1)
