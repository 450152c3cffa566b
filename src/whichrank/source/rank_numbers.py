"""Ranks and their number, as a program or a script computes them: RANK = node * per_node + local needs
WORLD_SIZE = nodes * per_node."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash
from whichrank.source._constants import Constants

_WHY = "it is the number of one host's processes, while RANK counts over all hosts: most ranks are out of range"
_FIX = "Write the number of hosts times the processes of each."
_PRODUCT = re.compile(r"\$\(\(\s*\(?\s*\$?\{?(\w+)\}?\s*\*\s*\$?\{?(\w+)\}?\s*\)?\s*\+")


def in_program(
    given: Mapping[str, tuple[ast.expr, ast.AST]], constants: Constants, ref: Callable[[ast.AST], Ref]
) -> Clash | None:
    """By the expressions of an environment that a program makes."""
    if not {"RANK", "WORLD_SIZE"} <= given.keys():
        return None
    rank, size = (_bare(given[name][0], constants) for name in ("RANK", "WORLD_SIZE"))
    if not isinstance(rank, ast.BinOp) or not isinstance(rank.op, ast.Add):
        return None
    for term in (rank.left, rank.right):
        if not isinstance(term, ast.BinOp) or not isinstance(term.op, ast.Mult):
            continue
        if _same(size, (term.left, term.right), constants):
            return Clash("WORLD_SIZE", ref(given["WORLD_SIZE"][1]), _WHY, _FIX, (ref(given["RANK"][1]),))
    return None


def _same(size: ast.expr, factors: tuple[ast.expr, ast.expr], constants: Constants) -> bool:
    """The size is one factor of the ranks' product alone, and no product itself."""
    if isinstance(size, ast.Constant):
        return any(constants.text(factor) == str(size.value) for factor in factors)
    return any(ast.dump(factor) == ast.dump(size) for factor in factors)


def _bare(node: ast.expr, constants: Constants) -> ast.expr:
    """Without str(…), f"{…}" and a name in between that stands for a sum or a product."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            node = node.args[0]
        elif isinstance(node, ast.JoinedStr) and len(node.values) == 1:
            only = node.values[0]
            return _bare(only.value, constants) if isinstance(only, ast.FormattedValue) else node
        else:
            known = constants.resolve(node) if isinstance(node, ast.Name) else node
            return known if isinstance(known, ast.BinOp) else node


def in_script(rank: str, size: str) -> bool:
    """By the texts that a script assigns to RANK and WORLD_SIZE."""
    factors = _PRODUCT.search(rank)
    alone = re.fullmatch(r"[\"']?\$?\{?(\w+)\}?[\"']?", size)
    return bool(factors and alone and alone[1] in factors.groups())


def clash(ref: Ref, also: Ref) -> Clash:
    return Clash("WORLD_SIZE", ref, _WHY, _FIX, (also,))
