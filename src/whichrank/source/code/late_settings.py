"""Variables of the environment that a program sets after they were read, also by a helper in another file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from whichrank.facts.variables.environment import read_again
from whichrank.records.code import Habit
from whichrank.source._constants import Constants
from whichrank.source._environ import environ_names
from whichrank.source._order import Found, Known, Seen, followed
from whichrank.source._program_file import File
from whichrank.source._program_file import Function as Node
from whichrank.source.code.index import Class, Function, Module, Project, resolve
from whichrank.source.code.paths.differences import place
from whichrank.source.nodes import dotted as dotted_name

_SETS = re.compile(
    r"environ\s*\[[^\]]*\]\s*=[^=]|environ\.(?:setdefault|update)|putenv|environ\s*\|=|=\s*os\.environ\s*$"
)
_MAKES = re.compile(r"init_process_group|['\"]nccl['\"]")
"""Files that make the process group, or name what it is made with."""


def in_wrong_order(project: Project, called: frozenset[str]) -> Iterator[Habit]:
    """What each file that sets variables, or that calls one which does, sets too late; barriers before any device."""
    setters = {name for name, module in project.modules.items() if any(map(_SETS.search, module.lines))}
    if {"init_process_group", "barrier", "set_device"} <= called:  # else the order says nothing about devices
        setters |= {name for name, module in project.modules.items() if any(map(_MAKES.search, module.lines))}
    reading = _Reading(project)
    seen: set[tuple[str, int, str]] = set()
    for name, module in project.modules.items():
        if name not in setters and not any(_meant(project, full) in setters for full in module.imports.values()):
            continue
        try:
            found, barriers = followed(reading.file(module), reading.elsewhere, reading.known)
        except RecursionError:
            continue
        for barrier, made in barriers:
            key = (barrier.label, getattr(barrier.node, "lineno", 1), "barrier")
            if key not in seen and _on_nccl(made, reading.files[made.label].constants):
                seen.add(key)
                yield reading.too_early(barrier, made)
        for late in found:
            key = (late.label, getattr(late.node, "lineno", 1), late.name)
            if key not in seen and not read_again(late.name) and not _unread(late):
                seen.add(key)
                yield reading.habit(late)


def _meant(project: Project, full: str) -> str:
    """The module that an imported name is, or is in."""
    return full if full in project.modules else full.rpartition(".")[0]


def _unread(late: Found) -> bool:
    """A variable of NCCL, where the group is made with another back end: `init_process_group("gloo")`."""
    named = [value.value for value in _back_end(late.event_node) if isinstance(value, ast.Constant)]
    return "NCCL_" in late.name and any(isinstance(name, str) and "nccl" not in name for name in named)


def _back_end(node: ast.AST) -> list[ast.expr]:
    """What a call gives init_process_group as the back end."""
    if not isinstance(node, ast.Call) or not dotted_name(node.func).endswith("init_process_group"):
        return []
    return [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "backend")]


class _Reading:
    """The files of a project as they are followed from one to the other."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.modules = {module.label: module for module in project.modules.values()}
        self.files: dict[str, File] = {}
        self.known: Known = {}

    def file(self, module: Module) -> File:
        if module.label not in self.files:
            constants = Constants.of(module.tree)
            for name, full in module.imports.items():
                if (value := self._imported(full)) is not None:
                    constants.assigned.setdefault(name, [value])
            self.files[module.label] = File(module.tree, environ_names(module.tree), constants, module.label)
        return self.files[module.label]

    def _imported(self, full: str) -> ast.expr | None:
        """The dictionary or text of another file that a name stands for."""
        head, _, last = full.rpartition(".")
        holder = self.project.modules.get(head)
        for statement in holder.tree.body if holder is not None else ():
            if isinstance(statement, ast.Assign) and any(_is(target, last) for target in statement.targets):
                return statement.value
        return None

    def elsewhere(self, label: str, dotted: str) -> tuple[File, Node] | None:
        """The function of another file that a call means."""
        module = self.modules[label]
        if not dotted or dotted.partition(".")[0] not in module.imports:
            return None
        found = self.project.find(resolve(module, dotted))
        if isinstance(found, Class):
            found = self.project.method(found, "__init__")
        if not isinstance(found, Function) or found.node is None:
            return None
        return self.file(found.module), found.node

    def too_early(self, barrier: Seen, made: Seen) -> Habit:
        line, init = getattr(barrier.node, "lineno", 1), getattr(made.node, "lineno", 1)
        said = "NCCL has to guess the device of this barrier: none is chosen before it"
        return Habit(
            "no device",
            place(self.modules[barrier.label], line),
            said,
            (place(self.modules[made.label], init),),
        )

    def habit(self, late: Found) -> Habit:
        line, event = getattr(late.node, "lineno", 1), getattr(late.event_node, "lineno", 1)
        where = f"on line {event}" if late.label == late.event_label else f"in {late.event_label}, line {event}"
        said = f"{late.name} is set too late: {late.event} {where}, before this line"
        read = place(self.modules[late.event_label], event)
        return Habit("set late", place(self.modules[late.label], line), said, (read,))


def _on_nccl(made: Seen, constants: Constants | None) -> bool:
    """Whether a call makes the process group with NCCL, as far as the file says."""
    given = _back_end(made.node)
    return any(isinstance(value, ast.Constant) and value.value == "nccl" for value in given) or any(
        constants is not None and constants.text(value) == "nccl" for value in given
    )


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
