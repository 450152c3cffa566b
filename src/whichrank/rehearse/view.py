"""The script's own source, as far as it explains why ranks part: branches on the rank, loops, swallowed errors."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

RANK = re.compile(r"rank|is_main|is_master|master_process|main_process|is_local_main|is_global_zero", re.IGNORECASE)
SIZE_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a line stands in, innermost first."""

    conditions: tuple[tuple[int, str], ...] = ()
    loops: tuple[tuple[int, int, bool], ...] = ()
    """First line, last line, and whether something leaves the loop early."""
    swallowed: int | None = None
    """The line of a `try` around it whose handler goes on."""

    @property
    def on_rank(self) -> tuple[int, str] | None:
        return next((one for one in self.conditions if RANK.search(one[1])), None)


@lru_cache(maxsize=64)
def tree(path: str) -> ast.Module | None:
    try:
        file = Path(path)
        if file.stat().st_size > SIZE_LIMIT:
            return None
        return ast.parse(file.read_bytes(), path)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=1024)
def around(path: str, line: int) -> Surroundings:
    """The conditions, loops and handlers around a line, within its function."""
    module = tree(path)
    if module is None:
        return Surroundings()
    chain: list[ast.AST] = []
    _descend(module, line, chain)
    conditions, loops, swallowed = [], [], None
    for node in reversed(chain):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(node, (ast.If, ast.IfExp)) and not _inside(node.test, line):
            conditions.append((node.lineno, ast.unparse(node.test)))
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            leaves = any(isinstance(one, (ast.Break, ast.Return)) for one in ast.walk(node))
            loops.append((node.lineno, node.end_lineno or node.lineno, leaves))
        if isinstance(node, ast.Try) and swallowed is None and _swallows(node, line):
            swallowed = node.lineno
    return Surroundings(tuple(conditions), tuple(loops), swallowed)


def _swallows(node: ast.Try, line: int) -> bool:
    """Whether an error in this line would be caught, and the program go on."""
    quiet = [not any(isinstance(one, ast.Raise) for one in ast.walk(handler)) for handler in node.handlers]
    return any(quiet) and any(_inside(one, line) for one in node.body)


def source_line(path: str, line: int) -> str:
    """The text of a line, without its indentation."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            for number, text in enumerate(stream, 1):
                if number == line:
                    return text.strip()[:200]
    except OSError:
        pass
    return ""


def _inside(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last


def _descend(node: ast.AST, line: int, chain: list[ast.AST]) -> None:
    for child in ast.iter_child_nodes(node):
        if _inside(child, line):
            chain.append(child)
            _descend(child, line, chain)
            return
        if not hasattr(child, "lineno"):
            _descend(child, line, chain)
