"""How many ranks a program is written for: `assert dist.get_world_size() == 2`."""

from __future__ import annotations

import ast
import re

from whichrank.source.code.index import Module
from whichrank.source.code.values import WORLD

_NUMBER_OF_RANKS = re.compile(r"world_?size|num_processes|nprocs|n_ranks", re.IGNORECASE)


def ranks_played(module: Module) -> int:
    """Four, or fewer where the program refuses to run with four."""
    for node in module.nodes:
        if isinstance(node, ast.Assert):
            size = _compared(node.test, ast.Eq)
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            size = _compared(node.test, ast.NotEq)
        else:
            continue
        if 1 < size < WORLD:
            return size
    return WORLD


def _compared(test: ast.expr, how: type[ast.cmpop]) -> int:
    """The number that the number of ranks is compared with; 0 where the test asks something else."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], how):
        return 0
    number = test.comparators[0]
    asked = _NUMBER_OF_RANKS.search(ast.unparse(test.left)) is not None
    return number.value if asked and isinstance(number, ast.Constant) and isinstance(number.value, int) else 0
