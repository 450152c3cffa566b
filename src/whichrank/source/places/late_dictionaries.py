"""Dictionaries that a program fills after it has started the process that gets them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from whichrank.source.nodes import asks_for_main, walk
from whichrank.source.places.early_copies import Missed

_WHY = "the process was started before, with the dictionary as it was"


def filled_late(tree: ast.Module, starts: Sequence[tuple[ast.AST, ast.expr]]) -> Iterator[Missed]:
    """`Popen(…, env=env)` and then `env["NAME"] = …`, with no start behind it. Starts: calls with their env=."""
    for body in _bodies(tree):
        made, started = _made(body), _started(body, starts)
        for index, statement in enumerate(body):
            if (filled := _filled(statement)) is None:
                continue
            name, key = filled
            late = name in started and made.get(name, -1) < started[name] < index
            if late and not _is_read(name, body[index + 1 :]):
                yield Missed(key, statement, _WHY)


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in walk(tree):
        if isinstance(node, ast.If) and not asks_for_main(node.test):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module | ast.If):
            yield node.body


def _made(body: Sequence[ast.stmt]) -> dict[str, int]:
    """Name -> the last statement that assigns it."""
    assigned = [(index, statement) for index, statement in enumerate(body) if isinstance(statement, ast.Assign)]
    return {to.id: index for index, statement in assigned for to in statement.targets if isinstance(to, ast.Name)}


def _started(body: Sequence[ast.stmt], starts: Sequence[tuple[ast.AST, ast.expr]]) -> dict[str, int]:
    """Name of a dictionary -> the last statement that starts a process with it."""
    found: dict[str, int] = {}
    for index, statement in enumerate(body):
        inner = set(map(id, walk(statement)))
        found.update((env.id, index) for call, env in starts if isinstance(env, ast.Name) and id(call) in inner)
    return found


def _filled(statement: ast.stmt) -> tuple[str, str] | None:
    """`env["NAME"] = …`: the dictionary and the key."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        return (target.value.id, str(target.slice.value)) if isinstance(target.slice, ast.Constant) else None
    return None


def _is_read(name: str, later: Sequence[ast.stmt]) -> bool:
    """Whether anything behind takes the dictionary, other than to fill it further."""
    filled = {
        id(s.targets[0].value) for s in later if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Subscript)
    }
    names = (n for s in later for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return any(node.id == name and id(node) not in filled for node in names)
