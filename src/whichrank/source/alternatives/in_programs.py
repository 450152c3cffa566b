"""Alternatives of a program: branches on its arguments, and tables of environments of which one is chosen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from whichrank.facts.variables.environment import catalogue, in_family
from whichrank.source._constants import Constants
from whichrank.source.alternatives.defaults import Defaults
from whichrank.source.nodes import asks_for_main, last_name


class Way(NamedTuple):
    """An alternative, and whether somebody has to ask for it."""

    name: str = ""
    asked: bool = False


ALWAYS = Way()
Ways: TypeAlias = dict[int, Way]
"""Of nodes that belong to an alternative, by their id; others always count, or count by default."""


def alternatives(tree: ast.Module, constants: Constants) -> Ways:
    defaults = Defaults.of(tree, constants)
    ways: Ways = {}
    uses: dict[str, list[Way]] = {}
    for node, way in _branches(tree, defaults):
        if way.name:
            ways[id(node)] = way
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(way)
    chosen = _chosen(tree, defaults)
    for table, name in _tables(tree, constants):
        for key, inner in zip(table.keys, table.values, strict=True):
            text = key.value if isinstance(key, ast.Constant) else None
            keys = chosen.get(name)
            if keys is not None and text in keys:
                continue
            way = Way(f"entry of line {inner.lineno}", asked=keys is not None)
            _mark(inner, way, ways)
            if isinstance(inner, ast.Name):
                uses[inner.id] = [way if use == ALWAYS else use for use in uses.get(inner.id, [])]
    for name, found in uses.items():
        if all(way.asked for way in found):
            for part in (*constants.assigned.get(name, ())[:1], *_function(name, constants)):
                _mark(part, found[0], ways)
    return ways


def _function(name: str, constants: Constants) -> list[ast.AST]:
    return [constants.functions[name]] if name in constants.functions else []


def _mark(node: ast.AST, way: Way, ways: Ways) -> None:
    for inner in ast.walk(node):
        ways.setdefault(id(inner), way)


def _branches(tree: ast.Module, defaults: Defaults) -> Iterator[tuple[ast.AST, Way]]:
    """All nodes, each with the branch that it stands in."""
    waiting: list[tuple[ast.AST, Way]] = [(tree, ALWAYS)]
    while waiting:
        node, way = waiting.pop()
        yield node, way
        if isinstance(node, ast.If | ast.IfExp) and not asks_for_main(node.test):
            holds = defaults.truth(node.test)
            body = node.body if isinstance(node, ast.If) else [node.body]
            otherwise = node.orelse if isinstance(node, ast.If) else [node.orelse]
            waiting.append((node.test, way))
            waiting += [(child, _inside(way, node, "if", holds)) for child in body]
            holds = None if holds is None else not holds
            waiting += [(child, _inside(way, node, "else", holds)) for child in otherwise]
        elif isinstance(node, ast.Match):
            waiting.append((node.subject, way))
            for case, holds in zip(node.cases, defaults.cases(node), strict=True):
                waiting.append((case, _inside(way, case.pattern, "case", holds)))
        else:
            waiting += [(child, way) for child in ast.iter_child_nodes(node)]


def _inside(way: Way, node: ast.AST, which: str, holds: bool | None) -> Way:
    if holds:
        return way
    return Way(f"{which} of line {getattr(node, 'lineno', 0)}", way.asked or holds is False)


def _tables(tree: ast.Module, constants: Constants) -> Iterator[tuple[ast.Dict, str]]:
    """Dictionaries whose values are all environments, with the name that they are given."""
    names = {id(values[0]): name for name, values in constants.assigned.items() if len(values) == 1}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict) or len(node.keys) < 2:
            continue
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        if len(keys) < len(node.keys) or any("env" in key.lower() or _is_setting(key) for key in keys):
            continue
        inner = [constants.resolve(value) for value in node.values]
        if all(_is_dictionary(value) for value in inner) and any(_sets(value) for value in inner):
            yield node, names.get(id(node), "")


def _is_dictionary(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_dictionary(node.left) or _is_dictionary(node.right)
    return isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and last_name(node.func) == "dict")


def _sets(node: ast.expr) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else []
    named = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    named += [keyword.arg or "" for keyword in node.keywords] if isinstance(node, ast.Call) else []
    return any(_is_setting(name) for name in named)


def _is_setting(name: str) -> bool:
    return name in catalogue() or in_family(name)


def _chosen(tree: ast.Module, defaults: Defaults) -> dict[str, set[object]]:
    """Tables that the program looks something up in, with the keys that it takes where nobody asks for another."""
    found: dict[str, set[object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            holder, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            holder, key = node.func.value, node.args[0]
        else:
            continue
        if isinstance(holder, ast.Name):
            known = defaults.value(key)
            found.setdefault(holder.id, set()).update(known or ())
    return found
