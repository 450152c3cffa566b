"""The loops of the scripts of a job: which lines each holds, and whether it can be left early.

Two ranks that part at a loop's end had different numbers of batches; two that part within its body took different
branches. The lines of a stack alone don't tell these apart. Only line numbers are kept, no code.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

MARK = "whichrank_outline"
_MOST_FILES, _LARGEST = 32, 1 << 20
_FILE = re.compile(r'(?:File "|\()([^"()\n]{1,1000}\.py)(?:", line |:)\d')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "/_whichrank_inside/", "<")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def of_stacks(texts: Iterable[bytes], folder: Path | None = None) -> bytes:
    """The outline of every script that these stacks name and that is on this host; nothing where there is none.

    `folder` is where the ranks were started: names that are not absolute are meant from there."""
    named = {match for text in texts for match in _FILE.findall(text.decode("utf-8", "replace"))}
    scripts = sorted(path for path in named if not any(part in path for part in _LIBRARIES))
    loops = {path: found for path in scripts[:_MOST_FILES] if (found := _loops_of((folder or Path()) / path))}
    return json.dumps({MARK: 1, "loops": loops}).encode() if loops else b""


def _loops_of(path: Path) -> list[list[int]]:
    try:
        if not path.is_absolute() or not path.is_file() or path.stat().st_size > _LARGEST:
            return []
        return loops(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def loops(source: str) -> list[list[int]]:
    """First line, last line, and 1 where the loop can be left before its iterable ends."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
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
