"""Dictionaries that a program keeps for their names: to look something up, to warn of it, to take it out."""

from __future__ import annotations

import ast

from whichrank.facts.variables.environment import in_family
from whichrank.source._constants import Constants
from whichrank.source.nodes import last_name, walk

_VIEWS = frozenset({"items", "keys", "values", "get"})
_TELLS = frozenset({
    "print", "pop", "unsetenv", "discard", "remove", "get", "getenv", "format", "join", "write", "debug", "info",
    "warning", "warn", "error", "add_argument", "str", "repr", "len", "exit", "ljust", "upper", "lower",
})  # fmt: skip
_PRINTS = frozenset({
    "print", "write", "debug", "info", "warning", "warn", "error", "exception", "critical", "exit", "fail",
})  # fmt: skip
"""What is in their arguments is read by people."""
_COLLECTS = frozenset({"append", "add", "insert"})
_SAME = frozenset({"set", "frozenset", "sorted", "list", "tuple"})


def names_only(tree: ast.AST, constants: Constants) -> frozenset[int]:
    """The ids of dictionaries that set nothing: they have a name that is used for nothing but that, or they say what
    each variable is called now, or what it is for."""
    above = {child: node for node in walk(tree) for child in ast.iter_child_nodes(node)}
    about = {id(node) for node in walk(tree) if isinstance(node, ast.Dict) and _tells_of_names(node)}
    uses: dict[str, list[ast.Name]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append(node)
    return frozenset(about) | frozenset(
        id(values[0])
        for name, values in constants.assigned.items()
        if len(values) == 1 and isinstance(values[0], ast.Dict) and name in uses
        if all(_sets_nothing(use, above) for use in uses[name])
    )


def _tells_of_names(node: ast.Dict) -> bool:
    """Every value is the name of a variable, or a sentence about it."""
    texts = [value.value for value in node.values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    if not texts or len(texts) < len(node.values):
        return False
    return all(in_family(text) for text in texts) or all(text.count(" ") > 1 and "=" not in text for text in texts)


def _sets_nothing(use: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """`x in NAMES`, and a loop over them that only tells of each or takes it out of something."""
    node = use
    parent = above.get(node)
    while parent is not None and _passes_on(parent, node):
        node, parent = parent, above.get(parent)
    if isinstance(parent, ast.Compare):  # also `WANTED.items() <= os.environ.items()`
        return True
    if isinstance(parent, ast.BinOp):  # `OLD.keys() & os.environ.keys()`: the names alone
        return isinstance(parent.op, ast.BitAnd | ast.Sub)
    around = above.get(parent) if isinstance(parent, ast.comprehension) else parent
    if not isinstance(around, ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return False
    return node is getattr(parent, "iter", None) and not any(_may_set(inner) for inner in _worked_with(around))


def _worked_with(node: ast.AST) -> list[ast.AST]:
    """The nodes below, without what is only printed."""
    found = [node]
    for each in found:
        message = each.msg if isinstance(each, ast.Assert) else None
        for child in ast.iter_child_nodes(each):
            printed = isinstance(child, ast.Call) and (last_name(child.func) in _PRINTS or _collects_a_sentence(child))
            if not printed and child is not message and not isinstance(child, ast.Raise):
                found.append(child)
    return found


def _collects_a_sentence(call: ast.Call) -> bool:
    """`problems.append(f"{old} is now {new}")`; a text without blanks may be an option of a command."""
    if last_name(call.func) not in _COLLECTS or not call.args:
        return False
    parts = call.args[-1].values if isinstance(call.args[-1], ast.JoinedStr) else [call.args[-1]]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return any(" " in text.strip(" -=") for text in texts)


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
    if isinstance(node, ast.Subscript):  # `del env[name]` takes it out
        return isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and "=" in node.value
    if isinstance(node, ast.Tuple):
        return isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.DictComp | ast.Yield)
