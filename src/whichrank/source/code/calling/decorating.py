"""Decorators: those that put a function of the project around another, and those that go on after its error."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.events import Event, Fork, communicates
from whichrank.source.code.index import Function, resolve
from whichrank.source.code.values import Origin, Value
from whichrank.source.nodes import calls_any, dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Analysis
    from whichrank.source.code.index import Project

_AGAIN = re.compile(r"(?:^|_)(?:retry|retries|retrying|retryable)(?:_|$)|^on_exception$|^on_predicate$|^backoff$")


def tries_again(project: Project, function: Function, before: int) -> int:
    """The line of a decorator that goes on after an error, where something above a line may fail; 0 without one."""
    for item in function.node.decorator_list if function.node is not None else ():
        inner = item.func if isinstance(item, ast.Call) else item
        text = dotted(inner)
        found = project.find(resolve(function.module, text)) if text else None
        again = _catches(found) if isinstance(found, Function) else _AGAIN.search(last_name(inner)) is not None
        if again and calls_before(function, before):
            return item.lineno
    return 0


def _catches(decorator: Function) -> bool:
    """Whether a decorator of the project calls what it wraps in a `try` whose handler does not raise again."""
    if decorator.node is None:
        return False
    wrapped = {decorator.params[0]} if decorator.params else set()
    wrapped |= {inner.params[0] for inner in decorator.module.everything if inner.parent is decorator and inner.params}
    for part in walk(decorator.node):
        if isinstance(part, ast.Try) and any(calls_any(statement, wrapped) for statement in part.body):
            return any(not isinstance(handler.body[-1], ast.Raise) for handler in part.handlers)
    return False


def calls_before(function: Function, line: int) -> bool:
    """Whether anything that may fail is called above a line."""
    node = function.node
    body = node.body if node is not None else []
    return any(isinstance(part, ast.Call) and part.lineno < line for statement in body for part in walk(statement))


def wrapper_of(analysis: Analysis, function: Function) -> tuple[Function, str] | None:
    """The function that a decorator of the project puts around this one, and the name it calls it by."""
    for node in function.node.decorator_list if function.node is not None else ():
        text = dotted(node.func if isinstance(node, ast.Call) else node)
        found = analysis.project.find(resolve(function.module, text)) if text else None
        if isinstance(found, Function) and found is not function and found.params:
            made = analysis.summary(found).returns.thing
            if isinstance(node, ast.Call) and isinstance(made, Function) and made.parent is found:
                found, made = made, analysis.summary(made).returns.thing
            inside = isinstance(made, Function) and made.parent is found and bool(found.params)
            if inside and isinstance(made, Function) and _decides(analysis.summary(made).events):
                return made, found.params[0]
    return None


def _decides(events: list[Event]) -> bool:
    """Whether a wrapper communicates, or asks something other than the rank before it calls what it wraps."""
    return communicates(events) or any(isinstance(event, Fork) and _asks_data(event.test) for event in events)


def _asks_data(test: Value) -> bool:
    kinds = {origin.kind for origin in test.taint if isinstance(origin, Origin)}
    return bool(kinds) and "rank" not in kinds
