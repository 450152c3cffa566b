"""Python programs: what they put into os.environ and into the environments of their children, and when."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from whichrank.facts.environment import catalogue, in_family
from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, Late, Lost, SettingsFile
from whichrank.source import _order
from whichrank.source._environ import Pair, environ_names, is_environ, named, pairs, sets

KIND = "python"
QUOTE_LIMIT = 300


def read(text: str, label: str, first_line: int = 1) -> SettingsFile:
    """What a program sets, and what it sets too late. A program that does not parse is said to be so."""
    out = SettingsFile.empty(label, KIND)
    lines = text.split("\n")

    def ref(node: ast.AST) -> Ref:
        line = getattr(node, "lineno", 1)
        quote = lines[line - 1].strip() if line <= len(lines) else ""
        return Ref(label, f"line {line + first_line - 1}", quote[:QUOTE_LIMIT])

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the program are not ours to report
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        out.note = f"not a Python program that this Python can parse: {type(error).__name__}"
        return out
    branches = {inner for node in ast.walk(tree) if _is_branch(node) for inner in ast.walk(node)}
    for name, value, node in _assigned(tree):
        if _refused(value):
            why = "os.environ takes strings only: this line raises TypeError"
            out.lost.append(
                Lost(name, ref(node), why, f"Write the value as a string: '{ast.unparse(value)}'.", "error")
            )
        out.assignments.append(Assignment(name, _text(value), ref(node), label, "python", sure=node not in branches))
    for name, value, node in _for_children(tree):
        out.assignments.append(Assignment(name, _text(value), ref(node), f"{label}:children", "python"))
    try:
        order = _order.too_late(tree, environ_names(tree))
    except RecursionError:
        order, out.note = [], "nested too deeply to follow the order of its statements"
    for found in order:
        late = Assignment(found.name, None, ref(found.node), label, "python")
        out.late.append(Late(late, found.event, ref(found.event_node), sure=not _read_again(found.name)))
    return out


def _read_again(name: str) -> bool:
    """NCCL reads some variables anew for every communicator: those that are made later see the change."""
    variable = catalogue().get(name)
    return variable is not None and variable.when_read == "every communicator init"


def _is_branch(node: ast.AST) -> bool:
    """A condition; `if __name__ == "__main__"` is none, it holds where it matters."""
    if not isinstance(node, ast.If):
        return False
    return not any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def _assigned(tree: ast.AST) -> Iterator[Pair]:
    names = environ_names(tree)
    for node in ast.walk(tree):
        yield from sets(node, names)


def _for_children(tree: ast.AST) -> Iterator[Pair]:
    """Variables of our families in dictionaries that are called an environment (`env=`, `env_vars`)."""
    names = environ_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and not is_environ(target.value, names):
                    if _speaks_of_env(target.value):
                        yield from _in_family(named(target.slice, node.value, node))
                elif _speaks_of_env(target):
                    yield from _in_family(pairs(node.value))
        elif isinstance(node, ast.keyword) and node.arg and "env" in node.arg.lower():
            yield from _in_family(pairs(node.value))
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and "env" in key.value.lower():
                    yield from _in_family(pairs(value))


def _in_family(found: Iterator[Pair]) -> Iterator[Pair]:
    return (pair for pair in found if in_family(pair[0]))


def _speaks_of_env(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return "env" in name.lower()


def _refused(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not isinstance(value.value, str)


def _text(value: ast.expr) -> str | None:
    """The string that an expression surely is."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "str":
        return _text(value.args[0]) if len(value.args) == 1 else None
    return None
