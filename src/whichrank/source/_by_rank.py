"""Branches of a program on the rank or the host, which set what all ranks must share."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from whichrank.facts.variables.environment import must_match
from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source import rank_numbers
from whichrank.source._constants import Constants
from whichrank.source._environ import Pair, named, sets

_RANK = re.compile(
    r"(?:\w{1,40}_)?rank|SLURM_(?:PROCID|NODEID|LOCALID)|OMPI_COMM_WORLD_\w{0,6}RANK",
    re.IGNORECASE,
)
_HOST = re.compile(r"gethostname|getfqdn|platform\.node|os\.uname")
_FIX = "Set it once for all ranks, before the condition."


def differ(
    tree: ast.Module, constants: Constants, environ: frozenset[str], ref: Callable[[ast.AST], Ref]
) -> Iterator[Clash]:
    """Settings that only some ranks, or some hosts, of a job get."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If) or not (what := _depends_on(node.test, constants)):
            continue
        one, other = (_set_in(body, environ, constants) for body in (node.body, node.orelse))
        for name in sorted({*one, *other}):
            texts = [constants.text(side[name][0]) if name in side else "" for side in (one, other)]
            if what != "rank" and name.endswith("_FILE"):
                continue  # hosts may keep the same thing in different places
            if not must_match(name) or texts[0] == texts[1] or any(UNKNOWN in text for text in texts):
                continue
            place = (one.get(name) or other[name])[1]
            why = f"the branch depends on the {what}, so ranks get different values of what all of them must share"
            yield Clash(name, ref(place), why, _FIX, (ref(node),))


def _depends_on(test: ast.expr, constants: Constants) -> str:
    """ "rank", or "host's name"; empty for other conditions, such as whether there is a rank at all."""
    if isinstance(test, ast.BoolOp):
        return next((what for value in test.values if (what := _depends_on(value, constants))), "")
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return "rank" if _is_rank(test.operand, constants) else ""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return ""
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if _is_host(left, constants) and rank_numbers.ALONE.search(ast.unparse(right)):
        return ""
    if _is_host(left, constants) and isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return "host's name"
    if not _is_rank(left, constants) or isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot):
        return ""
    number = ast.unparse(right).strip("'\"")
    absent = number.startswith("-") or (number == "0" and isinstance(operator, ast.Lt | ast.GtE)) or number == ""
    return "" if absent else "rank"


def _is_rank(node: ast.expr, constants: Constants) -> bool:
    """A name, an attribute or a variable that is called a rank, whatever is computed of it."""
    for inner in ast.walk(constants.resolve(node)):
        name = inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            name = inner.value
        if name in {"get_rank", "get_node_local_rank"} or (name and _RANK.fullmatch(name)):
            return True
    return isinstance(node, ast.Name) and bool(_RANK.fullmatch(node.id))


def _is_host(node: ast.expr, constants: Constants) -> bool:
    return bool(_HOST.search(ast.unparse(constants.resolve(node))))


def _set_in(body: list[ast.stmt], environ: frozenset[str], constants: Constants) -> dict[str, tuple[ast.expr, ast.AST]]:
    """What statements put into os.environ, or into a dictionary under the name of a setting."""
    found: dict[str, tuple[ast.expr, ast.AST]] = {}
    for statement in body:
        for node in ast.walk(statement):
            given: list[Pair] = list(sets(node, environ, constants))
            if isinstance(node, ast.Assign):
                keys = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
                given += [pair for key in keys for pair in named(key, node.value, node)]
            found.update({name: (value, place) for name, value, place in given})
    return found
