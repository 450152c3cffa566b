"""Habits that ask for trouble: read off the syntax tree, file by file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whichrank.records.code import Habit
from whichrank.source.code.index import Module, dotted, last_name, resolve
from whichrank.source.code.paths.differences import place
from whichrank.source.nodes import walk


def called_names(module: Module) -> Iterator[str]:
    """The names of everything that a file calls."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            yield name
            if isinstance(node.func, ast.Name) and name in module.imports:
                yield module.imports[name].rpartition(".")[2]
            if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                yield str(node.args[1].value)  # got here, called later


def habits(module: Module, called: frozenset[str]) -> Iterator[Habit]:
    """All that is found in one file of a project: with the names of all that the project calls."""
    calls: dict[str, list[ast.Call]] = {}
    for node in module.nodes:
        if isinstance(node, ast.Call):
            full = resolve(module, dotted(node.func)) if dotted(node.func) else ""
            name = full.rpartition(".")[2] if isinstance(node.func, ast.Name) else last_name(node.func)
            calls.setdefault(name, []).append(node)
    if not calls:
        return
    yield from _no_set_epoch(module, calls, called)
    yield from _no_timeout(module, calls)
    yield from _no_device(module, calls)


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _no_set_epoch(module: Module, calls: dict[str, list[ast.Call]], called: frozenset[str]) -> Iterator[Habit]:
    """A shuffling DistributedSampler gives the same order every epoch unless it is told the epoch."""
    if "set_epoch" in called:
        return
    loops = (node for node in module.nodes if isinstance(node, ast.For))
    epochs = [n for n in loops if "epoch" in f"{ast.unparse(n.target)} {ast.unparse(n.iter)}".lower()]
    for call in calls.get("DistributedSampler", []):
        if not _is_false(_keyword(call, "shuffle")) and epochs:
            ref = place(module, call.lineno)
            said = "set_epoch() is never called: every epoch has the same order of samples"
            yield Habit("no set_epoch", ref, said, (place(module, epochs[0].lineno),))


def _no_timeout(module: Module, calls: dict[str, list[ast.Call]]) -> Iterator[Habit]:
    """new_group does not inherit the timeout of init_process_group."""
    inits = [c for c in calls.get("init_process_group", []) if _keyword(c, "timeout") is not None]
    for call in calls.get("new_group", []):
        if inits and _keyword(call, "timeout") is None and len(call.args) < 2:
            said = "this group has the default timeout, not the one given to init_process_group"
            yield Habit("no timeout", place(module, call.lineno), said, (place(module, inits[0].lineno),))


def _no_device(module: Module, calls: dict[str, list[ast.Call]]) -> Iterator[Habit]:
    """A barrier on NCCL guesses its device from the rank unless one is given."""
    inits = calls.get("init_process_group", [])
    nccl = [c for c in inits if any(isinstance(n, ast.Constant) and n.value == "nccl" for n in walk(c))]
    if not nccl or any(_keyword(c, "device_id") is not None for c in inits) or "set_device" in calls:
        return
    on_cpu = _groups_on_cpu(module)
    for call in calls.get("barrier", []):
        full = resolve(module, dotted(call.func)) if dotted(call.func) else ""
        group = _keyword(call, "group") or (call.args[0] if call.args else None)
        if group is not None and last_name(group) in on_cpu:
            continue
        if full.startswith("torch.distributed") and _keyword(call, "device_ids") is None:
            said = "NCCL has to guess the device of this barrier, and no device was set"
            yield Habit("no device", place(module, call.lineno), said, (place(module, nccl[0].lineno),))


def _groups_on_cpu(module: Module) -> set[str]:
    """Names of groups that are made with Gloo or MPI."""
    made = (n for n in module.nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    return {
        last_name(target)
        for node in made
        if any(isinstance(part, ast.Constant) and part.value in {"gloo", "mpi"} for part in walk(node.value))
        for target in node.targets
    }
