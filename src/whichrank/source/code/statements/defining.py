"""Functions and classes where they are defined: closures, and decorators that put them into registries."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.names import reference
from whichrank.source.code.index import Function
from whichrank.source.code.values import CLEAN, UNKNOWN, Callee, Taint, Value, union
from whichrank.source.nodes import dotted, walk

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame


def definition(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    function = frame.function.module.defs.get(node)
    if function is not None and function.owner is None:
        caught = _caught_by(frame, node) if frame.function.node is not None else CLEAN
        frame.env[node.name] = Value(caught, thing=function, tags=frozenset({"itself"}))
        if frame.function.node is not None:  # what a module holds may be changed by others: it is asked for anew
            frame.analysis.closures[function] = frame.env
        _decorated(frame, node, function)
    return False


def _decorated(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, function: Callee) -> None:
    """A decorator of the project is called with the function: it may put it into a registry."""
    for decorator in node.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        text = dotted(inner)
        known = (frame.lookup(text) if text.isidentifier() else None) or (reference(frame, text) if text else UNKNOWN)
        found = known.thing
        if isinstance(decorator, ast.Call) and isinstance(found, Function):
            found = frame.analysis.summary(found).returns.thing
        if isinstance(found, Function) and found.params and found is not function:
            place = 1 if found.params[0] in {"self", "cls"} and found.is_method else 0
            if place < len(found.params):
                itself = Value(thing=function, tags=frozenset({"itself"}))
                frame.analysis.gather(found, found.params[place], itself)


def _caught_by(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Taint:
    """What a nested function takes from the variables around it."""
    names = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return union(*(frame.env[name].taint for name in names if name in frame.env))


def class_body(frame: Frame, node: ast.ClassDef) -> bool:
    """Methods are read on their own; a decorator may put the class into a registry."""
    owner = frame.function.module.classes.get(node.name)
    if node.decorator_list and owner is not None:
        _decorated(frame, node, owner)
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.decorator_list:
            method = frame.function.module.defs.get(inner)
            if method is not None:
                _decorated(frame, inner, method)
    return False
