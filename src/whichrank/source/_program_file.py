"""One file of a program: its functions and classes, and what its names stand for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from whichrank.facts.variables.environment import catalogue
from whichrank.source._constants import Constants
from whichrank.source.nodes import called_as, last_name, walk

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_NAMES = re.compile(r"\b([A-Z][A-Z0-9_]+)=")


class OwnClass(Struct):
    """A class of the program: its methods, and its fields by name."""

    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for inner in self.node.body:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                self.methods.setdefault(inner.name, inner)
        targets: list[ast.expr] = [n.target for n in self.node.body if isinstance(n, ast.AnnAssign)]
        targets += [target for n in self.node.body if isinstance(n, ast.Assign) for target in n.targets]
        self.fields = tuple(target.id for target in targets if isinstance(target, ast.Name))


class File(Struct):
    """A file that is followed: its functions, and what its names stand for."""

    tree: ast.Module
    environ: frozenset[str]
    constants: Constants | None = None
    label: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, OwnClass] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    """Variables and attributes that hold an object, with the name of its class."""

    def __post_init__(self) -> None:
        for node in walk(self.tree) if not self.functions else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, OwnClass(node))
                if first := self.classes[node.name].methods.get("__init__"):
                    self.functions.setdefault(node.name, first)
            elif isinstance(node, ast.Assign):
                self._held(node.targets[0], node.value)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._held(node.optional_vars, node.context_expr)

    def _held(self, target: ast.expr, value: ast.expr) -> None:
        if (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Name)
            and isinstance(target, ast.Name | ast.Attribute)
        ):
            self.objects[called_as(target)] = value.func.id

    def class_of(self, node: ast.expr) -> str:
        """The class of the object that an expression is; empty where that is not known."""
        if isinstance(node, ast.Call):
            return node.func.id if isinstance(node.func, ast.Name) else ""
        return self.objects.get(called_as(node), "") if isinstance(node, ast.Name | ast.Attribute) else ""

    def named_settings(self) -> Iterator[str]:
        """Variables of the catalogue that dictionaries in this file name."""
        keys = (key for node in walk(self.tree) if isinstance(node, ast.Dict) for key in node.keys)
        names = (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        return (name for name in names if name in catalogue())

    def written_in(self, function: Function) -> Iterator[str]:
        """Names that a method may put into the environment by loops over its object: fields, and what fills it."""
        owners = {name for name, owner in self.classes.items() if function in owner.methods.values()}
        arguments = (*function.args.posonlyargs, *function.args.args)
        owners |= {last_name(a.annotation) for a in arguments if a.annotation is not None}
        assigned = self.constants.assigned if self.constants is not None else {}
        for text in (value for argument in arguments for value in assigned.get(argument.arg, ())):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):  # "NCCL_DEBUG=INFO …"
                yield from _NAMES.findall(text.value)
        for name in sorted(owners & self.classes.keys()):
            yield from self.classes[name].fields
            for node in walk(self.tree):
                if isinstance(node, ast.Call) and last_name(node.func) == name:
                    yield from (keyword.arg for keyword in node.keywords if keyword.arg)
