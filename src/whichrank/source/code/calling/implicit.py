"""Methods that Python calls by itself: properties, `__len__`, `__getitem__`, `__str__`, `__next__`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.choices import GROWN
from whichrank.source.code.events import Enter
from whichrank.source.code.index import Class, Function
from whichrank.source.code.values import Value

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

PROPERTIES = frozenset({"property", "cached_property", "lazy_property"})


def is_property(method: Function) -> bool:
    return not PROPERTIES.isdisjoint(method.decorators())


def entered(frame: Frame, method: Function, line: int) -> Value:
    """What a method without arguments returns; noted as a call where it does something that others have to match."""
    summary = frame.analysis.summary(method)
    if summary.events and method is not frame.function:
        frame.emit(Enter(method, line, frame.function))
    return summary.returns


def operator_method(frame: Frame, value: Value, node: ast.AST, *names: str) -> Value | None:
    """The result of the first of these methods that the object's class has."""
    if not isinstance(value.thing, Class) or "itself" in value.tags:
        return None
    for name in names:
        method = frame.analysis.project.method(value.thing, name)
        if method is not None:
            return entered(frame, method, getattr(node, "lineno", 1))
    return None


def truth(frame: Frame, value: Value, node: ast.AST) -> Value:
    """What a condition asks: an object of the project says itself whether it is true."""
    if GROWN in value.tags:
        return value._replace(taint=value.length)
    return operator_method(frame, value, node, "__bool__") or value
