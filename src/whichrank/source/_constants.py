"""What expressions of a program surely are: texts, dictionaries and lists that the file itself spells out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct, field

from whichrank.records.settings import UNKNOWN
from whichrank.source.nodes import last_name, walk

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
DEPTH_LIMIT = 8
LONGEST = 1 << 17
"""Linux starts no program with a longer argument or variable."""
_MOST_WORDS = 4096
_MOST_STEPS = 300_000
"""Texts that are put together of one another grow with each level."""


class Constants(Struct):
    """Names that a file assigns once, and functions that return something."""

    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    """Names whose list or dictionary is changed later on."""
    functions: dict[str, Function] = field(default_factory=dict)
    updated: set[str] = field(default_factory=set)
    """Names of dictionaries that take over others later: `env.update(os.environ)`."""
    added: dict[str, list[tuple[ast.expr, ast.expr, ast.AST]]] = field(default_factory=dict)
    """Name of a dictionary -> keys and values that are put into it later."""

    owners: dict[int, int] = field(default_factory=dict)
    """Node -> the innermost function around it, both by id(); nothing for nodes outside of functions."""
    steps: int = 0

    @classmethod
    def of(cls, tree: ast.AST) -> Constants:
        found = cls()
        for node in walk(tree):
            found.take(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.owners.update((id(inner), id(node)) for inner in walk(node))
        return found

    def values_of(self, node: ast.Name) -> list[ast.expr]:
        """What is assigned to a name: where several functions have one of that name, in the function of the node."""
        every = self.assigned.get(node.id, [])
        here = [value for value in every if self.owners.get(id(value)) == self.owners.get(id(node))]
        return every if len(every) < 2 else here or [value for value in every if id(value) not in self.owners]

    def added_to(self, node: ast.Name) -> list[tuple[ast.expr, ast.expr, ast.AST]]:
        """What is put into a dictionary later, found in the same way."""
        every, alone = self.added.get(node.id, []), len(self.assigned.get(node.id, [])) < 2
        return [each for each in every if alone or self.owners.get(id(each[2])) == self.owners.get(id(node))]

    def take(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self.assigned.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    self.added.setdefault(target.value.id, []).append((target.slice, node.value, node))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.changed.add(node.target.id)
            self.updated.add(node.target.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and node.func.attr in {"append", "extend", "insert", "pop", "remove"}:
                self.changed.add(owner.id)
            if isinstance(owner, ast.Name) and node.func.attr == "update":
                self._update(owner.id, node)
            if isinstance(owner, ast.Name) and node.func.attr == "setdefault" and len(node.args) == 2:
                self.added.setdefault(owner.id, []).append((node.args[0], node.args[1], node))

    def _update(self, name: str, node: ast.Call) -> None:
        """`env.update(RANK=…)` and `env.update({"RANK": …})` say what they add; another dictionary holds anything."""
        added = self.added.setdefault(name, [])
        added += [(ast.copy_location(ast.Constant(k.arg), k.value), k.value, k.value) for k in node.keywords if k.arg]
        given = node.args[0] if node.args else None
        if isinstance(given, ast.Dict) and None not in given.keys:
            added += [(k, v, k) for k, v in zip(given.keys, given.values, strict=True) if k is not None]
        elif given is not None or any(k.arg is None for k in node.keywords):
            self.updated.add(name)

    def resolve(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """The expression behind a name that is assigned once, or behind a call of a function that returns one."""
        if depth > DEPTH_LIMIT:
            return node
        if isinstance(node, ast.Name) and len(self.assigned.get(node.id, [])) == 1:
            return self.resolve(self.assigned[node.id][0], depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            returned = list(returns(self.functions[node.func.id]))
            if len(returned) == 1:
                return self.resolve(returned[0], depth + 1)
        return node

    def text(self, node: ast.expr, depth: int = 0) -> str:
        """The string of an expression, with UNKNOWN for what only running the program would tell."""
        self.steps += 1
        if depth > DEPTH_LIMIT or self.steps > _MOST_STEPS:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
            return _together(self.text(part, depth + 1) for part in parts)
        if isinstance(node, ast.BinOp):
            path = isinstance(node.op, ast.Div) and isinstance(getattr(node.right, "value", None), str)
            both = (self.text(node.left, depth + 1), "/" if path else "", self.text(node.right, depth + 1))
            return _together(both) if path or isinstance(node.op, ast.Add) else UNKNOWN
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self.text(node.values[-1], depth + 1)
        if isinstance(node, ast.Name):
            values = self.assigned.get(node.id, [])
            fixed = len(values) == 1 and node.id not in self.changed
            return self.text(values[0], depth + 1) if fixed else UNKNOWN
        return UNKNOWN

    def _called(self, node: ast.Call, depth: int) -> str:
        if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
            return self.text(node.args[0], depth + 1)
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
            words = self.strings(node.args[0], depth + 1)
            return str(len(words)) if words and all(UNKNOWN not in word for word, _ in words) else UNKNOWN
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            returned = list(returns(self.functions[node.func.id]))
            return self.text(returned[0], depth + 1) if len(returned) == 1 else UNKNOWN
        if last_name(node.func) == "quote" and len(node.args) == 1:
            return self.text(node.args[0], depth + 1)
        # os.environ.get("X", "default") and os.getenv: the default is what the file says.
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if (joined := self.joined(node, depth + 1)) is not None:
            with_ = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            between = " " if is_shlex(with_) else self.text(with_, depth + 1)
            return _together(part for text, _ in joined for part in (between, text)).removeprefix(between)
        if name in {"get", "getenv"} and len(node.args) == 2:
            return self.text(node.args[1], depth + 1)
        return UNKNOWN

    def joined(self, node: ast.expr, depth: int = 0) -> list[tuple[str, int]] | None:
        """The words of `" ".join(words)`, or of `shlex.join(words)`."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            return None
        between = node.func.value
        text = node.func.attr == "join" and (
            (isinstance(between, ast.Constant) and isinstance(between.value, str)) or is_shlex(between)
        )
        return self.strings(node.args[0], depth) if text else None

    def strings(self, node: ast.expr, depth: int = 0) -> list[tuple[str, int]] | None:
        """The words of a list that is not changed later, each with its line."""
        self.steps += 1
        spent = depth > DEPTH_LIMIT or self.steps > _MOST_STEPS
        if spent or (isinstance(node, ast.Name) and node.id in self.changed):
            return None
        node = self.resolve(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.strings(node.left, depth + 1), self.strings(node.right, depth + 1)
            return None if left is None else left + (right or [(UNKNOWN, node.lineno)])
        if not isinstance(node, ast.List | ast.Tuple):
            return None
        words: list[tuple[str, int]] = []
        for item in node.elts:
            if len(words) > _MOST_WORDS:
                return None
            if isinstance(item, ast.Starred):
                words += self.strings(item.value, depth + 1) or [(UNKNOWN, item.lineno)]
            else:
                words.append((self.text(item, depth + 1), item.lineno))
        return words


def is_shlex(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "shlex"


def _together(parts: Iterable[str]) -> str:
    made: list[str] = []
    length = 0
    for part in parts:
        made.append(part)
        length += len(part)
        if length > LONGEST:
            return UNKNOWN
    return "".join(made)


def returns(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
