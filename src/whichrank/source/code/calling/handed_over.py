"""Work that is handed to a thread through a queue: the thread gets what the rest of the program puts, in that order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.index import last_name
from whichrank.source.code.values import Value, union

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame
    from whichrank.source.code.index import Module

_PUTS = frozenset({"put", "put_nowait"})


def noted_put(frame: Frame, made: Call) -> None:
    """`self.jobs.put(job)`: what is put, and the conditions under which it is."""
    if made.name in _PUTS and made.args and made.receiver_text:
        conditions = union(*frame.control, *frame.skips, *frame.loops, frame.left)
        frame.analysis.gather(frame.function.module, _key(made), Value(union(made.args[0].taint, conditions)))


def waited_for(frame: Frame, made: Call) -> Value | None:
    """`self.jobs.get()` in a thread, without a time limit: as many items and the same as the program puts."""
    module = frame.function.module
    if made.name != "get" or made.args or made.keywords or not _is_thread(module, frame.function.name):
        return None
    if not any(_puts(node, made) for node in module.nodes):
        return None
    put = frame.analysis.known.get((module, _key(made)))
    return Value(put.taint if put is not None else frozenset()).tagged("optional")


def _key(made: Call) -> str:
    return f"queue {made.receiver_text.rpartition('.')[2]}"


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
