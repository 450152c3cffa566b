"""Which function or class of the project a call means."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.index import Class, Function
from whichrank.source.code.values import (
    Value,
)
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

# Methods that every object has, or that say nothing about whose they are.
COMMON = frozenset({
    "get", "items", "keys", "values", "append", "update", "pop", "add", "copy", "close", "open", "read", "write", "run",
    "start", "stop", "join", "format", "split", "forward", "step", "backward", "train", "eval", "to", "cuda", "cpu",
    "save", "load", "state_dict", "load_state_dict", "parameters", "zero_grad", "reset", "compute", "log", "info",
    "__init__", "__call__", "setup", "build", "apply", "put", "send", "recv", "wait", "extend", "clear", "sort", "size",
    "index", "count", "map", "filter", "reduce", "gather", "scatter", "set", "view", "item", "print", "debug",
    "warning",
})  # fmt: skip


def callee_of(frame: Frame, made: Call) -> Value | None:
    """The value that is called, where it is a variable, an attribute or the result of an expression."""
    func = made.node.func
    if isinstance(func, ast.Name):
        return frame.lookup(func.id)
    if isinstance(func, ast.Attribute):
        known = frame.paths.get(f"{made.receiver_text}.{func.attr}") if made.receiver_text and frame.paths else None
        if known is not None:
            return known
        owner = made.receiver.thing if "itself" not in made.receiver.tags else None
        if isinstance(owner, Class) and frame.analysis.project.method(owner, func.attr) is None:
            return frame.analysis.attribute(owner, func.attr)
        return None
    return made.receiver


def target_of(frame: Frame, made: Call) -> Function | Class | None:
    """The function or class of the project that is called."""
    func = made.node.func
    if isinstance(func, ast.Name):
        local = frame.lookup(func.id)
        if local is not None:
            called = local.thing
            if isinstance(called, Class) and "itself" not in local.tags:
                return method_of(frame, called, "__call__") or method_of(frame, called, "forward")
            return called
    if made.full:
        found = frame.analysis.project.find(made.full)
        if isinstance(found, Function | Class):
            return found
    if not isinstance(func, ast.Attribute):
        return None
    held = callee_of(frame, made)
    if held is not None and isinstance(held.thing, Class) and "itself" not in held.tags:
        return method_of(frame, held.thing, "__call__") or method_of(frame, held.thing, "forward")
    return _method_called(frame, made, func)


def _method_called(frame: Frame, made: Call, func: ast.Attribute) -> Function | None:
    if isinstance(func.value, ast.Name) and func.value.id in {"self", "cls"} and frame.owner is not None:
        own = method_of(frame, frame.owner, made.name) or _sibling(frame, frame.owner, made.name)
        if own is not None:
            return own
    if isinstance(func.value, ast.Call) and last_name(func.value.func) == "super" and frame.owner is not None:
        return _inherited(frame, frame.owner, made.name)
    if isinstance(made.receiver.thing, Class):
        name = "forward" if made.name == "apply" and "itself" in made.receiver.tags else made.name
        return method_of(frame, made.receiver.thing, made.name) or method_of(frame, made.receiver.thing, name)
    if made.receiver_text == "self" or made.full.split(".")[0] in _module_roots(frame):
        return None
    return _only_one(frame, made.name)


def _module_roots(frame: Frame) -> frozenset[str]:
    module = frame.function.module
    if module.roots is None:
        module.roots = frozenset(name.split(".")[0] for name in module.imports.values())
    return module.roots


def method_of(frame: Frame, owner: Class, name: str) -> Function | None:
    return frame.analysis.project.method(owner, name)


def _sibling(frame: Frame, owner: Class, name: str) -> Function | None:
    """A method that only the classes have which this one is mixed into."""
    if name not in frame.analysis.project.methods:
        return None
    for heir in frame.analysis.project.heirs(owner):
        if found := frame.analysis.project.method(heir, name):
            return found
    return None


def _inherited(frame: Frame, owner: Class, name: str) -> Function | None:
    for base in owner.bases:
        found = frame.analysis.project.find(base)
        if isinstance(found, Class) and (method := frame.analysis.project.method(found, name)):
            return method
    return None


def _only_one(frame: Frame, name: str) -> Function | None:
    """A method that one class of the project alone has, on an object of unknown class."""
    if name in COMMON or name.startswith("__"):
        return None
    found = frame.analysis.project.methods.get(name, ())
    return found[0] if len(found) == 1 else None
