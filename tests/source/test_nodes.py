"""The walk through a syntax tree."""

from __future__ import annotations

import ast
from pathlib import Path

from whichrank.source.nodes import walk


def test_it_gives_what_python_gives_in_the_same_order():
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
