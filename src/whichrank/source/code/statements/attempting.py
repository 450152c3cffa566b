"""`try` while it is read: what its handlers and the rest see."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.events import (
    ALIKE,
    Attempt,
    Handler,
    ending,
    exits,
    matters,
)
from whichrank.source.code.statements.loops import turns
from whichrank.source.code.statements.merging import all_merged, caught, done_or_not
from whichrank.source.code.values import (
    CLEAN,
    Origin,
    Taint,
    Value,
    union,
)
from whichrank.source.nodes import last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

PROBE = re.compile(r"^_?(?:is|has|supports?|can|check)_|available|supported|installed|version|compatible")
MISSING_FILE = frozenset({"FileNotFoundError", "FileExistsError", "IsADirectoryError", "NotADirectoryError"})


def attempt(frame: Frame, node: ast.Try) -> bool:
    before = dict(frame.env)
    broken = len(frame.breaks[-1]) if frame.breaks else 0
    frame.trying += 1
    body, ended = frame.inside(node.body)
    frame.trying -= 1
    orelse, _ = frame.inside(node.orelse)
    after = frame.env
    handlers, all_end = [], ended
    imports = any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in node.body)
    envs = [] if ended else [after]
    for item in node.handlers:
        frame.env = {**before, **{k: v for k, v in after.items() if k in before}}
        types = tuple(last_name(t) for t in _types(item.type))
        alike = bool(types) and all(name in ALIKE or frame.analysis.raised_by_all(name) for name in types)
        alike = alike or imports or (types == ("KeyError",) and _looks_up(node.body))
        if item.name and not alike:
            frame.env[item.name] = Value(frozenset({Origin("exception", "an exception on this rank", *frame.at(item))}))
        mine = [dict(frame.env)]
        probes = PROBE.search(frame.function.name) is not None  # what a machine can do is the same on all of them
        if not alike and not probes:
            kind = "file" if types and set(types) <= MISSING_FILE else "exception"
            failed = Origin(kind, "whether this rank got an exception", *frame.at(item))
            frame.control.append(frozenset({failed}))
        events, handler_ended = frame.inside(item.body)
        if not alike and not probes:
            frame.control.pop()
        if "StopIteration" in types and exits(events) & {"break", "return"} and frame.ran_out:
            frame.ran_out[-1] = union(frame.ran_out[-1], _drawn_from(frame, node.body))
        all_end = all_end and handler_ended
        raises = ending(events) == "raise" and exits(events) == {"raise"}
        handlers.append(Handler(types, item.lineno, events, raises))
        if not handler_ended:
            envs.append(frame.env if alike else caught(mine[0], frame.env, frame.at(item)))
            if not alike and not ended:
                envs[0] = done_or_not(before, envs[0], frame.at(item))
            for number in range(broken, len(frame.breaks[-1]) if frame.breaks and not alike else 0):
                env, apart = frame.breaks[-1][number]
                frame.breaks[-1][number] = (done_or_not(before, env, frame.at(item)), apart)
    frame.env = all_merged(envs) if envs else after
    final, final_ended = frame.inside(node.finalbody)
    if any(map(matters, (body, orelse, final, *(h.body for h in handlers)))):
        line = node.finalbody[0].lineno if node.finalbody else node.lineno
        calls = any(isinstance(part, ast.Call) for statement in node.body for part in walk(statement))
        frame.emit(Attempt(node.lineno, body, handlers, final, line, orelse, calls))
    return final_ended or (all_end and not node.orelse)


def _drawn_from(frame: Frame, body: list[ast.stmt]) -> Taint:
    """Why iterators that these statements take the next element of may run out on some ranks first."""
    found = CLEAN
    for statement in body:
        for part in walk(statement):
            if isinstance(part, ast.Call) and last_name(part.func) == "next" and len(part.args) == 1:
                found = union(found, turns(frame, frame.aside(part.args[0])[1]).length)
    return found


def _looks_up(body: list[ast.stmt]) -> bool:
    """`x = cache[key]` alone: which keys a table has is the same on all ranks."""
    return len(body) == 1 and isinstance(body[0], ast.Assign | ast.Return) and isinstance(body[0].value, ast.Subscript)


def _types(node: ast.expr | None) -> list[ast.expr]:
    if node is None:
        return []
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]
