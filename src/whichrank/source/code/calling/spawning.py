"""Functions that run at another moment: threads, tasks of an event loop, signals, the end of the interpreter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.source.code.calling.sources import rank_value
from whichrank.source.code.evaluating.expressions import evaluate
from whichrank.source.code.evaluating.names import ALIAS
from whichrank.source.code.events import Enter, Op
from whichrank.source.code.index import Class, Function
from whichrank.source.code.statements.loops import COUNTER
from whichrank.source.code.values import UNKNOWN, Value
from whichrank.source.nodes import walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_LATER = {
    "Thread": "thread", "Timer": "thread", "submit": "thread", "to_thread": "thread", "run_in_executor": "thread",
    "start_new_thread": "thread", "apply_async": "thread", "register": "callback", "signal": "callback",
    "finalize": "callback", "add_signal_handler": "callback", "call_later": "callback",
}  # fmt: skip
_POOLS = frozenset({"map", "imap", "imap_unordered", "starmap", "submit", "apply_async", "map_async"})
_RETURNS = _POOLS | {"to_thread", "run_in_executor"}
_OWN_NAME = {"register": "atexit.register", "signal": "signal.signal", "to_thread": "asyncio.to_thread"}
"""Names that mean nothing without their module."""
_TASKS = frozenset({"gather", "create_task", "ensure_future", "as_completed", "run_coroutine_threadsafe"})


def spawned(frame: Frame, made: Call) -> Value | None:
    """A function that another thread, the event loop or the interpreter calls later."""
    if made.name in _TASKS and (made.full.startswith("asyncio.") or made.name == "create_task"):
        for target in _coroutines(frame, made):
            frame.analysis.later("task", target, frame.function, made.node.lineno)
        return None
    if made.name == "spawn" and "multiprocessing" in made.full:
        return _ranks_spawned(frame, made)
    if made.name == "Process" and "target" in made.keywords:
        return _process(frame, made)
    if made.name.startswith("register_") and made.name.endswith(("hook", "hooks")):
        _hooked(frame, made)
        return None
    kind = "thread" if made.name in _POOLS and "executor" in made.receiver.tags else _LATER.get(made.name)
    if kind is None or made.full != _OWN_NAME.get(made.name, made.full):
        return None
    if made.full and isinstance(frame.analysis.project.find(made.full), Class):
        return None
    wanted = made.keywords.get("target") or made.keywords.get("function")
    for value in [wanted, *made.args] if wanted is not None else made.args:
        if value is not None and not isinstance(value.thing, Class | None) and "itself" in value.tags:
            frame.analysis.later(kind, value.thing, frame.function, made.node.lineno)
        elif kind == "thread" and value is not None:
            _library_threads(frame, made, value)
    if made.name in _RETURNS:
        return None
    return Value(tags=frozenset({"thread"})) if kind == "thread" else UNKNOWN


def _library_threads(frame: Frame, made: Call, value: Value) -> None:
    """A collective of a library as the target of a thread: `Thread(target=dcp.save)`."""
    for tag in value.tags:
        if tag.startswith(ALIAS):
            group = next((ast.unparse(k.value) for k in made.node.keywords if k.arg == "group"), "")
            op = Op(tag.rpartition(".")[2], "collective", frame.function, made.node.lineno, group)
            frame.analysis.notes.threaded.append(op)


def _hooked(frame: Frame, made: Call) -> None:
    """A hook of a module or a tensor runs with every pass, on the ranks that registered it."""
    for value in (*made.args, *made.keywords.values()):
        if isinstance(value.thing, Function) and "itself" in value.tags:
            frame.emit(Enter(value.thing, made.node.lineno, frame.function))


def _ranks_spawned(frame: Frame, made: Call) -> Value:
    """torch.multiprocessing.spawn(f, args): every process gets its number first."""
    target = made.args[0].thing if made.args else made.keywords.get("fn", UNKNOWN).thing
    if isinstance(target, Function) and target.params:
        number = rank_value(frame, made.node, "the number of this process", "rank", "world")
        given = made.keywords.get("args") or (made.args[1] if len(made.args) > 1 else UNKNOWN)
        frame.analysis.called(target, dict(zip(target.params, (number, *(given.items or ())), strict=False)))
    return UNKNOWN


def _process(frame: Frame, made: Call) -> Value:
    """One process of several: a counter among its arguments is its number, where it joins a process group."""
    target, given = made.keywords["target"].thing, made.keywords.get("args", UNKNOWN)
    if isinstance(target, Function) and given.items:
        number = rank_value(frame, made.node, "the number of this process", "rank", "world")
        joins = _joins(frame, target)
        values = [number if joins and COUNTER in value.tags else value for value in given.items]
        frame.analysis.called(target, dict(zip(target.params, values, strict=False)))
    return UNKNOWN


def _joins(frame: Frame, target: Function) -> bool:
    events = frame.analysis.summary(target).events
    inner = (frame.analysis.summary(e.function).events for e in events if isinstance(e, Enter))
    return any(isinstance(e, Op) and e.kind == "init" for block in (events, *inner) for e in block)


def _coroutines(frame: Frame, made: Call) -> Iterator[Function]:
    """Coroutines of the project that are started together, and that wait for something on their way."""
    for node in made.node.args:
        inner = node.value if isinstance(node, ast.Starred) else node
        if isinstance(inner, ast.GeneratorExp | ast.ListComp):
            inner = inner.elt
        if not isinstance(inner, ast.Call):
            continue
        kept, frame.out = frame.out, []
        target = evaluate(frame, inner.func).thing
        frame.out = kept
        waits = isinstance(target, Function) and isinstance(target.node, ast.AsyncFunctionDef)
        if (
            waits
            and isinstance(target, Function)
            and any(isinstance(n, ast.Await) for s in target.body for n in walk(s))
        ):
            yield target
