"""Copies of the environment that a program fills and throws away: what it puts there reaches nobody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from whichrank.source._constants import Constants
from whichrank.source._environ import Pair, is_environ, named, pairs
from whichrank.source.nodes import last_name

_COPIES = frozenset({"copy", "deepcopy"})
_FILLS = frozenset({"update", "setdefault", "pop", "clear"})
_STARTS = frozenset({"run", "Popen", "call", "check_call", "system", "spawn", "init_process_group"})
_OWN_SCOPE = ast.FunctionDef | ast.AsyncFunctionDef


class Wasted(NamedTuple):
    """Variables that go into a copy which nobody gets."""

    pairs: list[Pair]
    why: str


_AT_ONCE = "it goes into a copy of os.environ that is thrown away at once"
_NEVER = "it goes into a copy of os.environ that nothing is started with"
_NONE = "update() changes the copy and returns None, so that nobody gets it"


def wasted(tree: ast.Module, constants: Constants, environ: frozenset[str]) -> Iterator[Wasted]:
    """Every place where a program fills such a copy."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"update", "setdefault"} and _is_copy(node.func.value, environ):
                filled = [*_filled(node, constants), *pairs(node.func.value, constants)]
                yield Wasted(filled, _AT_ONCE if id(node) in bare else _NONE)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _is_copy(target.value, environ):
                    yield Wasted(list(named(target.slice, node.value, node)), _AT_ONCE)
        if isinstance(node, ast.expr) and id(node) in bare and _is_copy(node, environ):
            yield Wasted(list(pairs(node, constants)), _AT_ONCE)
    yield from _never_handed_on(tree, constants, environ)


def _is_copy(node: ast.AST, environ: frozenset[str]) -> bool:
    """`os.environ.copy()`, `dict(os.environ, …)`, `{**os.environ, …}`, `os.environ | …`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" and is_environ(node.func.value, environ):
            return True
        copies = last_name(node.func) in {*_COPIES, "dict"}
        return copies and bool(node.args) and is_environ(node.args[0], environ)
    if isinstance(node, ast.Dict):
        return any(
            key is None and is_environ(value, environ) for key, value in zip(node.keys, node.values, strict=True)
        )
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and is_environ(node.left, environ)


def _filled(call: ast.Call, constants: Constants) -> Iterator[Pair]:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "setdefault" and len(call.args) == 2:
        yield from named(call.args[0], call.args[1], call)
        return
    for argument in call.args:
        yield from pairs(constants.resolve(argument), constants)
    yield from ((k.arg, k.value, k.value) for k in call.keywords if k.arg)


def _never_handed_on(tree: ast.Module, constants: Constants, environ: frozenset[str]) -> Iterator[Wasted]:
    """`env = os.environ.copy(); env["NAME"] = …`, and env is not mentioned again."""
    starts = any(isinstance(node, ast.Call) and last_name(node.func) in _STARTS for node in ast.walk(tree))
    for scope in ast.walk(tree):
        if not isinstance(scope, _OWN_SCOPE) and not (scope is tree and starts):
            continue  # what a module without a launch holds may be for others
        nodes = list(ast.walk(scope))
        shared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        for node in scope.body if isinstance(scope, _OWN_SCOPE | ast.Module) else ():
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and _is_copy(node.value, environ):
                filled = _only_filled(target.id, nodes, constants) if target.id not in shared else None
                if filled is not None:
                    yield Wasted([*pairs(node.value, constants), *filled], _NEVER)


def _only_filled(name: str, nodes: list[ast.AST], constants: Constants) -> list[Pair] | None:
    """What is put into a dictionary; None where it is used for anything else."""
    found: list[Pair] = []
    owners: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                    owners.add(id(target.value))
                    found += named(target.slice, node.value, node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            owner = func.value if isinstance(func, ast.Attribute) and func.attr in _FILLS else None
            if isinstance(owner, ast.Name) and owner.id == name:
                owners.add(id(owner))
                found += _filled(node.value, constants)
    loads = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    reads_all = any(isinstance(n, ast.Name) and n.id in {"locals", "vars", "eval", "exec"} for n in nodes)
    return None if reads_all or any(id(n) not in owners for n in loads) else found
