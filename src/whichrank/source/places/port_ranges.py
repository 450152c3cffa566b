"""Ports that a file computes from the number of the job or at random, and that leave the range of ports."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash
from whichrank.source.places.ports import LARGEST_PORT

if TYPE_CHECKING:
    from whichrank.source.shell.words import Lookup

NAMED = re.compile(r"(?:\w{0,40}_)?PORT", re.IGNORECASE)
_JOB = re.compile(
    r"(?:SLURM_(?:ARRAY_)?JOB_?ID|PBS_JOBID|LSB_JOBID|COBALT_JOBID|JOB_ID|FLUX_JOB_ID|OAR_JOB_ID|SLURM_JOBID)"
)
_SEVERAL_DIGITS = re.compile(r"\$\{(\w{1,40}):\s{0,4}\(?-(\d)\)?(?::\d)?\}")
_ARITHMETIC = re.compile(r"\$\(\(([^\n]{1,300}?)\)\)[\"']?$")
_SHUFFLED = re.compile(r"\bshuf\s[^|;`]{0,40}-i\s{0,4}\d{1,9}-(\d{1,9})\b")
_ENDLESS = 10**9
"""Numbers of jobs go beyond every port on a cluster that has run for some months."""
_DEPTH = 12
_HIGHEST_RANDOM = 32767

Known = Callable[[str], int | None]
"""Name -> the number that a variable is known to hold."""


def clash(name: str, largest: int, ref: Ref) -> Clash:
    reach = "the number of the job makes it larger than that" if largest >= _ENDLESS else f"this goes up to {largest}"
    why = f"the largest port is {LARGEST_PORT}, and {reach}"
    return Clash(name, ref, why, "Keep the sum below it: 20000 + the number of the job % 10000.")


def in_shell(raw: str, lookup: Lookup) -> int:
    """The largest number that `$((60000 + SLURM_JOB_ID % 10000))` becomes, where that is no port; else 0."""
    if drawn := _SHUFFLED.search(raw):
        return _no_port(int(drawn[1]))
    found = _ARITHMETIC.search(raw)
    if found is None:
        return 0
    text = _SEVERAL_DIGITS.sub(lambda m: f"({m[1]} % {10 ** int(m[2])})", found[1])
    text = re.sub(
        r"\$\{(\w{1,60})(?::-\w{0,20}|%%?\.[^}]{0,20})?\}|\$(\w{1,60})", lambda m: m[1] or m[2], text
    ).replace("$$", "RANDOM")
    try:
        tree = ast.parse(text.strip().replace("/", "//"), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return 0

    def known(name: str) -> int | None:
        value = lookup(name)
        return int(value.text) if value is not None and re.fullmatch(r"\d{1,9}", value.text) else None

    return _no_port(_largest(tree.body, known, 0))


def in_program(node: ast.expr, known: Known) -> int:
    """The same for an expression of Python, as it stands or as the argument of str()."""
    return _no_port(_largest(node, known, 0))


_OPTION = re.compile(r"(--(?:master|main[-_]process)[-_]port)(=?)$")


def in_command(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Options for a port in a list of words, with the expression of each: `f"--master-port={port}"`."""
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    for at, word in enumerate(words):
        parts = word.values if isinstance(word, ast.JoinedStr) else [word]
        told = _OPTION.match(str(parts[0].value)) if parts and isinstance(parts[0], ast.Constant) else None
        if told and told[2] and len(parts) == 2 and isinstance(parts[1], ast.FormattedValue):
            yield told[1], parts[1].value
        elif told and not told[2] and len(parts) == 1 and at + 1 < len(words):
            yield told[1], words[at + 1]


def _no_port(largest: int | None) -> int:
    return largest if largest is not None and largest > LARGEST_PORT else 0


def _largest(node: ast.expr, known: Known, depth: int) -> int | None:
    """The upper end of what an expression becomes; None where nothing is known of it. None of the parts is negative."""
    if depth > _DEPTH:
        return None
    found: int | None = None
    if isinstance(node, ast.Constant):
        found = node.value if isinstance(node.value, int) and 0 <= node.value < _ENDLESS else None
    elif isinstance(node, ast.Name):
        found = _named(node.id, known)
    elif isinstance(node, ast.Call):
        found = _called(node, known, depth)
    elif isinstance(node, ast.Subscript):
        found = _ENDLESS if _names_job(node) else None
    elif isinstance(node, ast.JoinedStr) and len(node.values) == 1 and isinstance(node.values[0], ast.FormattedValue):
        found = _largest(node.values[0].value, known, depth + 1)
    elif isinstance(node, ast.BinOp):
        found = _joined(node.op, _largest(node.left, known, depth + 1), _largest(node.right, known, depth + 1))
    return found


def _joined(operator: ast.operator, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if isinstance(operator, ast.Add | ast.Mult):
        return min(left + right if isinstance(operator, ast.Add) else left * right, _ENDLESS)
    return min(left, right - 1) if isinstance(operator, ast.Mod) and right else None


def _named(name: str, known: Known) -> int | None:
    if _JOB.fullmatch(name):
        return _ENDLESS
    return _HIGHEST_RANDOM if name == "RANDOM" else known(name)


def _called(node: ast.Call, known: Known, depth: int) -> int | None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in {"randint", "randrange"} and len(node.args) == 2:
        most = _largest(node.args[1], known, depth + 1)
        return most - (called == "randrange") if most is not None else None
    if called in {"int", "str"} and len(node.args) == 1:
        return _largest(node.args[0], known, depth + 1)
    return _ENDLESS if called in {"get", "getenv"} and _names_job(node) else None


def _names_job(node: ast.expr) -> bool:
    """`os.environ["SLURM_JOB_ID"]`, `os.environ.get("SLURM_JOB_ID", "0")`."""
    key = (
        node.slice
        if isinstance(node, ast.Subscript)
        else node.args[0]
        if isinstance(node, ast.Call) and node.args
        else None
    )
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and bool(_JOB.fullmatch(key.value))
