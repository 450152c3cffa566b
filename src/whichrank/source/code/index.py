"""The modules, functions and classes of a project, and what their imports mean."""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from whichrank.source.nodes import dotted, last_name, walk

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
MOST_HEIRS = 24
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


class Function(Struct, eq=False):
    """A function, a method, or the body of a module."""

    module: Module
    name: str
    body: list[ast.stmt]
    node: FunctionNode | None = None
    owner: Class | None = None
    parent: Function | None = None
    params: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        return self.node.lineno if self.node is not None else 1

    @property
    def is_method(self) -> bool:
        return self.owner is not None

    def decorators(self) -> Iterator[str]:
        """Last names of the decorators."""
        for item in self.node.decorator_list if self.node is not None else []:
            yield last_name(item.func if isinstance(item, ast.Call) else item)


class Class(Struct, eq=False):
    module: Module
    name: str
    node: ast.ClassDef
    bases: tuple[str, ...] = ()
    """Dotted names as imports say them."""
    methods: dict[str, Function] = field(default_factory=dict)
    writers: dict[str, list[Function]] = field(default_factory=dict)
    """Attribute of self -> the methods that assign it."""


class Module(Struct, eq=False):
    label: str
    name: str
    tree: ast.Module
    lines: list[str]
    nodes: list[ast.AST] = field(default_factory=list)
    """Every node of the tree, walked once."""
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    everything: list[Function] = field(default_factory=list)
    """All functions, nested ones and methods too."""
    body: Function | None = None
    defs: dict[ast.AST, Function] = field(default_factory=dict)
    roots: frozenset[str] | None = None
    """First parts of everything it imports."""
    trains: bool = False
    """Whether backward() is called anywhere in it."""
    meets_some: bool = False
    """Whether it talks to single ranks or makes groups of some."""


class Project(Struct):
    """All modules by name, and methods by name for calls on objects of unknown class."""

    modules: dict[str, Module] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    children: dict[Class, list[Class]] | None = None
    """The classes that derive from a class directly; worked out when first asked for."""

    def add(self, module: Module) -> None:
        name = module.name
        while name in self.modules:
            name += "'"
        module.name = name
        self.modules[name] = module
        for owner in module.classes.values():
            for function in owner.methods.values():
                self.methods[function.name].append(function)

    def find(self, dotted: str, depth: int = 0) -> Function | Class | Module | None:
        """What a dotted name stands for, re-exports followed."""
        if dotted in self.modules:
            return self.modules[dotted]
        head, _, last = dotted.rpartition(".")
        if not head or depth > 4:
            return None
        holder = self.modules.get(head)
        if holder is not None:
            found = holder.functions.get(last) or holder.classes.get(last)
            if found is None and last in holder.imports and holder.imports[last] != dotted:
                return self.find(holder.imports[last], depth + 1)
            return found
        owner = self.find(head, depth + 1)
        return owner.methods.get(last) if isinstance(owner, Class) else None

    def method(self, owner: Class, name: str, depth: int = 0) -> Function | None:
        """A method of a class or of the bases that the project holds."""
        if name in owner.methods:
            return owner.methods[name]
        for base in owner.bases if depth < 6 else ():
            found = self.find(base)
            if isinstance(found, Class) and (inherited := self.method(found, name, depth + 1)):
                return inherited
        return None

    def heirs(self, owner: Class) -> list[Class]:
        """Classes that derive from this one, at any depth."""
        if self.children is None:
            self.children = defaultdict(list)
            for module in self.modules.values():
                for each in module.classes.values():
                    for base in each.bases:
                        found = self.find(base)
                        if isinstance(found, Class) and found is not each:
                            self.children[found].append(each)
        found_heirs: dict[Class, None] = {}
        todo = list(self.children.get(owner, ()))
        while todo and len(found_heirs) < MOST_HEIRS:
            heir = todo.pop()
            if heir not in found_heirs:
                found_heirs.setdefault(heir)
                todo += self.children.get(heir, ())
        return list(found_heirs)

    def overrides(self, owner: Class, name: str) -> list[Function]:
        """The methods of derived classes that stand in for this one."""
        if len(self.methods.get(name, ())) < 2:
            return []
        return [heir.methods[name] for heir in self.heirs(owner) if name in heir.methods]

    def lineage(self, owner: Class, depth: int = 0) -> Iterator[str]:
        """Names of the class's bases, near ones first."""
        for base in owner.bases if depth < 6 else ():
            yield base
            found = self.find(base)
            if isinstance(found, Class) and found is not owner:
                yield from self.lineage(found, depth + 1)


def read_module(text: str, label: str, name: str) -> Module:
    """Parse one file. Raises what ast.parse raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the program are not ours to report
        tree = ast.parse(text)
    module = Module(label, name, tree, text.split("\n"), walk(tree))
    module.body = Function(module, "<module>", tree.body)
    module.trains = ".backward(" in text
    module.meets_some = any(word in text for word in ("send(", "recv(", "new_group("))
    _imports(module)
    _definitions(module, tree.body, None, None)
    return module


def _imports(module: Module) -> None:
    package = module.name if module.label.endswith("__init__.py") else module.name.rpartition(".")[0]
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                module.imports[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
                base = ".".join([*above, base]) if base else ".".join(above)
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name


def _definitions(module: Module, body: list[ast.stmt], owner: Class | None, parent: Function | None) -> None:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _function(module, node, owner, parent)
        elif isinstance(node, ast.ClassDef):
            bases = tuple(resolve(module, text) for base in node.bases if (text := dotted(base)))
            inner = Class(module, node.name, node, bases)
            if owner is None and parent is None:
                module.classes.setdefault(node.name, inner)
            _definitions(module, node.body, inner, parent)
        else:
            for nested in _blocks(node):
                _definitions(module, nested, owner, parent)


def _function(module: Module, node: FunctionNode, owner: Class | None, parent: Function | None) -> None:
    arguments = node.args
    params = tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
    function = Function(module, node.name, node.body, node, owner, parent, params)
    module.everything.append(function)
    module.defs[node] = function
    if owner is not None:
        if not any(name == "overload" for name in function.decorators()):
            owner.methods[node.name] = function
        _writers(owner, function)
    elif parent is None:
        module.functions[node.name] = function
    _definitions(module, node.body, None, function)


def from_lambda(parent: Function, node: ast.Lambda) -> Function:
    """A lambda as a function with one statement."""
    body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
    made = ast.FunctionDef("<lambda>", node.args, body, [], None)
    arguments = node.args
    params = tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
    function = Function(parent.module, "<lambda>", body, ast.copy_location(made, node), None, parent, params)
    parent.module.defs[node] = function
    return function


def _writers(owner: Class, function: Function) -> None:
    for node in walk(function.node or ast.Pass()):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"self", "cls"}
        ):
            known = owner.writers.setdefault(node.attr, [])
            if function not in known:
                known.append(function)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field_name in ("body", "orelse", "finalbody"):
        block = getattr(node, field_name, None)
        if isinstance(block, list):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for case in getattr(node, "cases", ()):
        yield case.body


def resolve(module: Module, text: str) -> str:
    """A dotted name with its first part replaced by what the imports say."""
    first, _, rest = text.partition(".")
    known = module.imports.get(first)
    if known is None:
        local = first in module.functions or first in module.classes
        known = f"{module.name}.{first}" if local and module.name else first
    return f"{known}.{rest}" if rest else known
