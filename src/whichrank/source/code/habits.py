"""Habits that ask for trouble: read off the syntax trees of a program's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct

from whichrank.records.code import Habit
from whichrank.source.code.index import Function, Module, Project, resolve
from whichrank.source.code.paths.differences import place
from whichrank.source.nodes import dotted, last_name, walk


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


_ONE_PROGRAM = 24
"""More files that import each other than this are a library: what one of them does may be meant for another program."""


class _File(Struct, frozen=True):
    """A file with its calls by name."""

    module: Module
    calls: dict[str, list[ast.Call]]


def habits(project: Project, called: frozenset[str]) -> Iterator[Habit]:
    """All that is found in a project: with the names of all that it calls."""
    for files in _connected([_File(m, calls) for m in project.modules.values() if (calls := _calls(m))]):
        if "set_epoch" not in called and not any(_hands_on_set_epoch(file.module) for file in files):
            yield from _no_set_epoch(files)
        yield from _no_timeout(project, files)
        if not any(_chooses_device(project, file) for file in files):
            for file in files:
                yield from _no_device(file.module, file.calls)


def _calls(module: Module) -> dict[str, list[ast.Call]]:
    """The calls of a file by name: other names of a function count as its own, and partials as calls."""
    calls: dict[str, list[ast.Call]] = {}
    other_names = {
        target.id: resolve(module, dotted(node.value))
        for node in module.tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in module.nodes:
        if isinstance(node, ast.Call):
            full = resolve(module, dotted(node.func)) if dotted(node.func) else ""
            full = other_names.get(full, full)
            name = full.rpartition(".")[2] if isinstance(node.func, ast.Name) else last_name(node.func)
            calls.setdefault(name, []).append(node)
            if name == "partial" and node.args:
                made = ast.copy_location(ast.Call(node.args[0], node.args[1:], node.keywords), node)
                calls.setdefault(last_name(node.args[0]), []).append(made)
    return calls


def _connected(files: list[_File]) -> list[list[_File]]:
    """Files that import each other, directly or through others, are one program; those of a library are many."""
    by_name = {file.module.name: file for file in files}
    linked: dict[str, set[str]] = {name: set() for name in by_name}
    for name, file in by_name.items():
        for full in file.module.imports.values():
            other = full if full in by_name else full.rpartition(".")[0]
            if other in by_name and other != name:
                linked[name].add(other)
                linked[other].add(name)
    found, seen = [], set()
    for name in by_name:
        todo, together = [name], []
        while todo:
            if (current := todo.pop()) not in seen:
                seen.add(current)
                together.append(by_name[current])
                todo += linked[current]
        if together:
            found += [together] if len(together) <= _ONE_PROGRAM else [[file] for file in together]
    return found


def _keyword(call: ast.Call, name: str, place: int = 99) -> ast.expr | None:
    """An argument by its name or place; what a dictionary brings (`**options`) may be this one."""
    for given in call.keywords:
        if given.arg in {name, None}:
            return given.value
    return call.args[place] if place < len(call.args) else None


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _no_set_epoch(files: list[_File]) -> Iterator[Habit]:
    """A shuffling DistributedSampler gives the same order every epoch unless it is told the epoch."""
    names = {"DistributedSampler"} | {
        owner.name
        for file in files
        for owner in file.module.classes.values()
        if any(base.endswith(".DistributedSampler") for base in owner.bases)
    }
    calls = [(file.module, call) for file in files for name in names for call in file.calls.get(name, [])]
    samplers = [(module, call) for module, call in calls if _shuffles(call)]
    if not samplers:
        return
    passes = frozenset(each.name for file in files for each in file.module.everything if _passes(each))
    loops = [(f.module, n) for f in files for n in f.module.nodes if isinstance(n, ast.For | ast.While)]
    epochs = [(module, loop) for module, loop in loops if _over_epochs(loop, passes)]
    if not epochs or any(_tells_itself(file.module) for file in files):
        return
    for module, call in samplers:
        own = [loop for holder, loop in epochs if holder is module]
        holder, loop = (module, own[0]) if own else epochs[0]
        said = "set_epoch() is never called: every epoch has the same order of samples"
        yield Habit("no set_epoch", place(module, call.lineno), said, (place(holder, loop.lineno),))


def _hands_on_set_epoch(module: Module) -> bool:
    """`return loader, sampler.set_epoch`: who gets the method calls it."""
    return any(isinstance(node, ast.Attribute) and node.attr == "set_epoch" for node in module.nodes)


def _shuffles(call: ast.Call) -> bool:
    return not _is(_keyword(call, "shuffle", 3), False) and all(given.arg is not None for given in call.keywords)


def _passes(function: Function) -> bool:
    """Whether a function goes through the data once: it trains on what a loader gives."""
    loops = [node for node in walk(function.node or ast.Pass()) if isinstance(node, ast.For)]
    return any("load" in ast.unparse(loop.iter).lower() and _trains(loop) for loop in loops)


def _trains(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) == "backward" for node in walk(loop))


def _over_epochs(loop: ast.For | ast.While, passes: frozenset[str]) -> bool:
    """A loop over epochs: by its words, or because it goes through a loop that trains again and again."""
    head = (
        f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}" if isinstance(loop, ast.For) else ast.unparse(loop.test)
    )
    if "epoch" in head.lower():
        return True
    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and _yields(loop):
        return True
    if isinstance(loop, ast.For) and not (isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in _COUNTS):
        return False
    nodes = walk(loop)
    if any(isinstance(node, ast.Call) and last_name(node.func) in passes for node in nodes):
        return True
    return any(isinstance(node, ast.For) and node is not loop and _trains(node) for node in nodes)


def _yields(loop: ast.While) -> bool:
    """`while True: yield from loader`: the loader is gone through again and again."""
    each = [
        node for node in walk(loop) if isinstance(node, ast.For) and isinstance(node.iter, ast.Name | ast.Attribute)
    ]
    return any(isinstance(node, ast.YieldFrom) for node in walk(loop)) or any(
        isinstance(node, ast.Yield) for inner in each for node in walk(inner)
    )


_COUNTS = frozenset({"range", "count", "trange"})
_TELLING = frozenset({"lightning", "pytorch_lightning", "accelerate", "transformers"})
"""Libraries whose loops and loaders tell the sampler the epoch."""


def _tells_itself(module: Module) -> bool:
    if any(full.partition(".")[0] in _TELLING for full in module.imports.values()):
        return True
    stored = (n for n in module.nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return any(node.attr == "epoch" and "sampler" in ast.unparse(node.value) for node in stored)


_MAKERS = {"new_group": 1, "new_subgroups": 2, "new_subgroups_by_enumeration": 1}
"""Functions that make groups, with the place of their timeout."""


def _no_timeout(project: Project, files: list[_File]) -> Iterator[Habit]:
    """new_group does not inherit the timeout of init_process_group."""
    inits = [(f.module, c) for f in files for c in f.calls.get("init_process_group", []) if _limited(c, 2)]
    if not inits:
        return
    for file in files:
        bound = {_name_of(node) for node in file.module.nodes if _is_partial(node)}
        for name, at in _MAKERS.items():
            for call in file.calls.get(name, []):
                own = isinstance(call.func, ast.Name) and call.func.id in bound
                if own or _limited(call, at) or project.find(resolve(file.module, dotted(call.func))) is not None:
                    continue
                said = "this group has the default timeout, not the one given to init_process_group"
                module, init = next((each for each in inits if each[0] is file.module), inits[0])
                yield Habit("no timeout", place(file.module, call.lineno), said, (place(module, init.lineno),))


def _limited(call: ast.Call, at: int) -> bool:
    """Whether a call is given a timeout, or something that may hold one."""
    given = _keyword(call, "timeout", at)
    return given is not None and not _is(given, None)


def _is_partial(node: ast.AST) -> bool:
    """`make = partial(dist.new_group, timeout=…)`."""
    made = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(made, ast.Call) or last_name(made.func) != "partial" or not made.args:
        return False
    return last_name(made.args[0]) in _MAKERS and _limited(made, 99)


def _name_of(node: ast.AST) -> str:
    return last_name(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _no_device(module: Module, calls: dict[str, list[ast.Call]]) -> Iterator[Habit]:
    """A barrier on NCCL guesses its device from the rank unless one is given."""
    inits = calls.get("init_process_group", [])
    nccl = [c for c in inits if any(isinstance(n, ast.Constant) and n.value == "nccl" for n in walk(c))]
    if not nccl or any(_keyword(c, "device_id") is not None for c in inits):
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


def _chooses_device(project: Project, file: _File) -> bool:
    """Whether a file sets the device, or calls a helper of a library that is named for it: `utils.get_device()`."""
    if "set_device" in file.calls:
        return True
    named = (call for name, calls in file.calls.items() if name.endswith("_device") for call in calls)
    texts = (resolve(file.module, text) for call in named if (text := dotted(call.func)))
    roots = {name.partition(".")[0] for name in file.module.imports.values()} - {"torch"}
    return any(text.partition(".")[0] in roots and project.find(text) is None for text in texts)


def _groups_on_cpu(module: Module) -> set[str]:
    """Names of groups that are made with Gloo or MPI."""
    made = (n for n in module.nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
    return {
        last_name(target)
        for node in made
        if any(isinstance(part, ast.Constant) and part.value in {"gloo", "mpi"} for part in walk(node.value))
        for target in node.targets
    }
