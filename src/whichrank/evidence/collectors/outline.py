"""The scripts of a job: loops and whether they can be left early, lines on a condition, halves of exchanges.

Two ranks that part at a loop's end had different numbers of batches; two that part within its body took different
branches. The lines of a stack alone don't tell these apart. Only line numbers are kept, and names of variables that
count or that say which rank this is; no code.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MARK = "whichrank_outline"
_MOST_FILES, _LARGEST = 32, 1 << 20
_MOST_CALLS = 8192
_FILE = re.compile(r'(?:File "|\()([^"()\n]{1,1000}\.py)(?:", line |:)\d')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "/_whichrank_inside/", "<")
_SENDS = frozenset({"send", "isend", "send_object_list"})
_RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
_SORTS = frozenset(
    {"sorted", "sort", "argsort", "shuffle", "nlargest", "nsmallest", "permutation", "randperm", "sample"}
)
_CHANGES = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "update", "pop", "popleft", "popitem", "remove", "discard",
     "clear", "setdefault"}
)  # fmt: skip
_MOST_NAMES = 4096
_BY_RANK = re.compile(r"rank|is_(?:main|master|leader|first|last)|main_process|coordinator", re.IGNORECASE)
_GROUP = re.compile(r"group|pg$|^pg|comm", re.IGNORECASE)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of_stacks(texts: Iterable[bytes], folder: Path | None = None) -> bytes:
    """The outline of every script that these stacks name and that is on this host; nothing where there is none.

    `folder` is where the ranks were started: names that are not absolute are meant from there."""
    named = {match for text in texts for match in _FILE.findall(text.decode("utf-8", "replace"))}
    scripts = sorted(path for path in named if not any(part in path for part in _LIBRARIES))
    trees = {path: tree for path in scripts[:_MOST_FILES] if (tree := _tree_of((folder or Path()) / path)) is not None}
    told: dict[str, dict[str, Any]] = {
        "loops": {path: rows for path, tree in trees.items() if (rows := loops(tree))},
        "exchanges": {path: lines for path, tree in trees.items() if (lines := exchanges(tree))},
    }
    if not any(told.values()):
        return b""
    told["branches"] = {path: branches(tree) for path, tree in trees.items()}
    told["functions"] = {path: functions(tree) for path, tree in trees.items()}
    told["calls"] = {path: rows for path, tree in trees.items() if (rows := calls(tree))}
    told["names_called"] = {path: rows for path, tree in trees.items() if (rows := names_called(tree))}
    told["sorts"] = {path: rows for path, tree in trees.items() if (rows := sorts(tree))}
    told["by_rank"] = {path: rows for path, tree in trees.items() if (rows := by_rank(tree))}
    told["counters"] = {path: names for path, tree in trees.items() if (names := counters(tree))}
    told["roles"] = {path: names for path, tree in trees.items() if (names := roles(tree))}
    return json.dumps({MARK: 1, **told}).encode()


def _tree_of(path: Path) -> ast.Module | None:
    try:
        if not path.is_absolute() or not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return parsed(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def branches(tree: ast.Module) -> list[list[int]]:
    """First and last line of all that is not reached every time: on a condition, in a try, behind a way out."""
    found: list[list[int]] = []
    for node in ast.walk(tree):
        parts: list[list[ast.stmt]] = []
        if isinstance(node, ast.If):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Try) and node.handlers:
            parts = [node.body, *(handler.body for handler in node.handlers), node.orelse]
        elif isinstance(node, ast.Match):
            parts = [case.body for case in node.cases]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            ways_out = [each.lineno for each in _within(node.body) if isinstance(each, ast.Continue)]
            found += [[line + 1, node.end_lineno or line] for line in ways_out]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ways_out = [each.lineno for each in _within(node.body) if isinstance(each, ast.Return)]
            found += [[line + 1, node.end_lineno or line] for line in ways_out]
        found += [_span(part) for part in parts if part]
    return sorted(each for each in found if each[0] <= each[1])


def _span(part: list[ast.stmt]) -> list[int]:
    return [part[0].lineno, part[-1].end_lineno or part[-1].lineno]


def functions(tree: ast.Module) -> list[list[int]]:
    """First and last line of every function."""
    defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sorted([node.lineno, node.end_lineno or node.lineno] for node in defined)


def calls(tree: ast.Module) -> list[list[int]]:
    """Lines of calls, each with the first line of a function of this name in the same file."""
    defined: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.setdefault(node.name, []).append(node.lineno)
    called = ((node.lineno, _named(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sorted([line, first] for line, name in called for first in defined.get(name, ()))[:_MOST_CALLS]


def names_called(tree: ast.Module) -> list[list[Any]]:
    """Lines of calls, each with the name that it calls and the name of the group that it gives."""
    found = {
        (node.lineno, name, _group_of(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (name := _named(node.func))
    }
    return [list(row) for row in sorted(found)[:_MOST_CALLS]]


def _group_of(call: ast.Call) -> str:
    given = next((word.value for word in call.keywords if word.arg == "group"), None)
    names = [_named(given)] if given is not None else [name for name in map(_named, call.args) if _GROUP.search(name)]
    return names[-1] if names else ""


def sorts(tree: ast.Module) -> list[list[int]]:
    """First and last line of statements, and of heads of loops, that put something in an order; of a loop over what was
    put in an order by a key all of it."""
    ordered = {
        _named(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _puts_in_order(node.value, by_key=True)
        for target in node.targets
    } - {""}
    found: list[list[int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor):
            if _named(node.iter) in ordered or _puts_in_order(node.iter, by_key=True):
                found.append([node.lineno, node.end_lineno or node.lineno])
            elif _puts_in_order(node.iter):
                found.append([node.lineno, node.iter.end_lineno or node.lineno])
        elif isinstance(node, ast.stmt) and not hasattr(node, "body") and _puts_in_order(node):
            found.append([node.lineno, node.end_lineno or node.lineno])
    return sorted(found)


def _puts_in_order(part: ast.AST, *, by_key: bool = False) -> bool:
    sorting = (each for each in ast.walk(part) if isinstance(each, ast.Call) and _named(each.func) in _SORTS)
    return any(not by_key or any(word.arg == "key" for word in each.keywords) for each in sorting)


def by_rank(tree: ast.Module) -> list[list[int]]:
    """First and last line of what a condition on the rank decides: `if rank == 0:` and what is behind its `return`."""
    found: list[list[int]] = []
    derived = _derived_from_rank(tree)
    for block in _blocks(tree):
        for at, each in enumerate(block):
            if not isinstance(each, ast.If) or not _asks_rank(each.test, derived):
                continue
            behind = block[at + 1 :] if isinstance(each.body[-1], ast.Return | ast.Continue) else []
            found += [_span(part) for part in (each.body, each.orelse, behind) if part]
    return sorted(found)


def counters(tree: ast.Module) -> list[str]:
    """Names that change as a rank goes on, whatever it computes: of loops, of `n += 1`, of lists that grow."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            found |= {_named(part) for part in ast.walk(node.target)}
        elif isinstance(node, ast.AugAssign):
            found.add(_named(node.target))
        elif isinstance(node, ast.Assign):
            read = {
                ast.dump(_loaded(part)) for part in ast.walk(node.value) if isinstance(part, ast.Name | ast.Attribute)
            }
            found |= {_named(target) for target in node.targets if ast.dump(_loaded(target)) in read}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            found.add(_named(node.func.value))
    return sorted(found - {""})[:_MOST_NAMES]


def roles(tree: ast.Module) -> list[str]:
    """Names that hold what is computed from the rank alone."""
    return sorted(_derived_from_rank(tree))[:_MOST_NAMES]


def _loaded(part: ast.AST) -> ast.AST:
    """The same name or attribute as it stands where it is read."""
    if isinstance(part, ast.Name):
        return ast.Name(part.id, ast.Load())
    return ast.Attribute(part.value, part.attr, ast.Load()) if isinstance(part, ast.Attribute) else part


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def _derived_from_rank(tree: ast.Module) -> frozenset[str]:
    """Names that hold something computed from the rank alone: `writer = dist.get_rank() == 0`, `stage = rank // 2`."""
    made = [
        (name, value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name, value in _assigned(target, node.value)
        if name and _plain(value)
    ]
    derived: frozenset[str] = frozenset()
    while True:
        more = derived | {target for target, value in made if _asks_rank(value, derived)}
        if more == derived:
            return derived
        derived = more


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names with what they get: two of `first, last = rank == 0, rank == last`, two of `node, local = divmod(…)`."""
    if not isinstance(target, ast.Tuple | ast.List):
        yield _named(target), value
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        yield from zip(map(_named, target.elts), value.elts, strict=True)
    else:
        yield from ((_named(part), value) for part in target.elts)


def _named(part: ast.AST) -> str:
    return part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""


def _plain(value: ast.expr) -> bool:
    """Whether this computes with numbers and names, and calls nothing but what gives a rank or a number."""
    called = (_named(node.func) for node in ast.walk(value) if isinstance(node, ast.Call))
    return all(name in {"int", "bool", "divmod", "min", "max"} or _BY_RANK.search(name) for name in called)


def _asks_rank(test: ast.expr, derived: frozenset[str]) -> bool:
    return any(name in derived or _BY_RANK.search(name) for name in map(_named, ast.walk(test)) if name)


def exchanges(tree: ast.Module) -> list[int]:
    """Lines of a recv that a send of the same block follows, and the reverse: who waits there owes the other half."""
    found: set[int] = set()
    for block in _blocks(tree):
        plain = (part for each in block if not hasattr(each, "body") for part in ast.walk(each))
        calls = sorted((call.lineno, _half(call)) for call in plain if isinstance(call, ast.Call))
        halves = [(line, half) for line, half in calls if half]
        found |= {line for at, (line, half) in enumerate(halves) if any(h != half for _, h in halves[at + 1 :])}
    return sorted(found)


def _half(call: ast.Call) -> str:
    name = _named(call.func)
    return "send" if name in _SENDS else "recv" if name in _RECEIVES else ""


def _within(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a body, without those of functions and classes that are defined in it."""
    for node in body:
        if not isinstance(node, _SCOPES):
            yield node
            yield from _within(ast.iter_child_nodes(node))


def loops(tree: ast.Module) -> list[list[int]]:
    """First line, last line, and 1 where the loop can be left before its iterable ends."""
    return [
        [node.lineno, node.end_lineno or node.lineno, int(isinstance(node, ast.While) or _leaves(node.body, own=True))]
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While)
    ]


def _leaves(body: Iterable[ast.AST], *, own: bool) -> bool:
    """Whether a statement ends the loop: a return or raise anywhere in it, a break that is its own."""
    for node in body:
        if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break)):
            return True
        if isinstance(node, _SCOPES):
            continue
        inner = isinstance(node, ast.For | ast.AsyncFor | ast.While)
        if _leaves(ast.iter_child_nodes(node), own=own and not inner):
            return True
    return False
