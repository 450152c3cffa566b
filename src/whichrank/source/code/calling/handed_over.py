"""Work that goes to or from a thread through a queue: one side gets what the other puts, in that order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.values import UNKNOWN, Value, union
from whichrank.source.nodes import last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame
    from whichrank.source.code.index import Module

_PUTS = frozenset({"put", "put_nowait"})
HANDED_OVER = "handed over"
"""Marks what came through such a queue; its length says why another rank gets more or fewer."""


def noted_put(frame: Frame, made: Call) -> None:
    """`self.jobs.put(job)`: what is put, and the conditions under which it is."""
    if made.name in _PUTS and made.args and made.receiver_text:
        conditions = union(*frame.control, *frame.skips, *frame.loops, frame.left)
        put = Value(union(made.args[0].taint, conditions), conditions)
        frame.analysis.gather(frame.function.module, _key(made), put)


def waited_for(frame: Frame, made: Call) -> Value | None:
    """`self.jobs.get()` without a time limit, from or in a thread: as many items and the same as the others put."""
    module = frame.function.module
    if made.name != "get" or made.args or made.keywords:
        return None
    fills = [function for function in module.everything if function.node and _fills(function.node, made)]
    if not fills or not any(_is_thread(module, each.name) for each in (frame.function, *fills)):
        return None
    put = frame.analysis.known.get((module, _key(made)), UNKNOWN)
    return Value(put.taint, put.length, frozenset({"optional", HANDED_OVER}))


def _key(made: Call) -> str:
    return f"queue {made.receiver_text.rpartition('.')[2]}"


def _fills(function: ast.AST, made: Call) -> bool:
    return any(_puts(node, made) for node in walk(function))


def _puts(node: ast.AST, made: Call) -> bool:
    if not isinstance(node, ast.Call) or last_name(node.func) not in _PUTS or not isinstance(node.func, ast.Attribute):
        return False
    return last_name(node.func.value) == made.receiver_text.rpartition(".")[2]


def _is_thread(module: Module, name: str) -> bool:
    """Whether the file starts a thread with this function."""
    return any(
        isinstance(node, ast.keyword) and node.arg == "target" and last_name(node.value) == name
        for node in module.nodes
    )
