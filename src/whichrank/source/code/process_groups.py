"""Process groups that a program makes and never destroys."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from whichrank.records.code import Habit
from whichrank.source.code.analysis import Analysis
from whichrank.source.code.events import Enter, Event, blocks
from whichrank.source.code.index import Function, Module, resolve
from whichrank.source.code.paths.differences import place
from whichrank.source.nodes import asks_for_main, calls_any, dotted, last_name, walk

_DESTROYS = frozenset({"destroy_process_group", "end_training"})
_TRAINS = frozenset({"backward", "manual_backward"})


def never_destroyed(analysis: Analysis, called: frozenset[str]) -> Iterator[Habit]:
    """A process group that is never destroyed: torch warns, and ranks may leave out of step."""
    modules = analysis.project.modules.values()
    if "init_process_group" not in called or "spawn" in called or any(map(_destroys, modules)):
        return
    calls = {function: set(_entered(summary.events)) for function, summary in analysis.summaries.items()}
    for module in modules:
        found = next(_inits(module), None)
        if found is None:
            continue
        call, function = found
        if _is_program(module) or any(_runs(each, calls) for each in _leading_to(function, calls)):
            said = "no call of destroy_process_group() ends this process group"
            yield Habit("never destroyed", place(module, call.lineno), said)


def _destroys(module: Module) -> bool:
    """Whether a file calls it, or hands it on: `atexit.register(dist.destroy_process_group)`."""
    return any(isinstance(n, ast.Name | ast.Attribute) and last_name(n) in _DESTROYS for n in module.nodes)


def _is_program(module: Module) -> bool:
    """A file that is run, not imported."""
    return any(isinstance(node, ast.If) and asks_for_main(node.test) for node in module.tree.body)


def _inits(module: Module) -> Iterator[tuple[ast.Call, Function]]:
    """Calls of torch's init_process_group, each with the function that it is in; the module's body as the last."""
    seen: set[ast.AST] = set()
    around = [*reversed(module.everything), *([module.body] if module.body is not None else [])]
    for function in around:
        for node in walk(function.node) if function.node is not None else module.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == "init_process_group" and node not in seen:
                seen.add(node)
                if resolve(module, dotted(node.func)).startswith("torch.distributed"):
                    yield node, function


def _runs(function: Function, calls: dict[Function, set[Function]]) -> bool:
    """Whether a function is the whole of a run: the body of a file, or what goes on to train."""
    if function.node is None:
        return True
    seen, todo = {function}, [function]
    while todo:
        current = todo.pop()
        if current.node is not None and calls_any(current.node, _TRAINS):
            return True
        new = calls.get(current, set()) - seen
        seen |= new
        todo += new
    return False


def _leading_to(function: Function, calls: dict[Function, set[Function]]) -> set[Function]:
    """The function and all that call it, directly or through others."""
    found, todo = {function}, [function]
    while todo:
        target = todo.pop()
        new = {caller for caller, entered in calls.items() if target in entered} - found
        found |= new
        todo += new
    return found


def _entered(events: Iterable[Event]) -> Iterator[Function]:
    for event in events:
        if isinstance(event, Enter):
            yield event.function
        for block in blocks(event):
            yield from _entered(block)
