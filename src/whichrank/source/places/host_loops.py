"""Commands that a program starts on one host after the other: `for host in hosts: Popen(["ssh", host, …])`."""

from __future__ import annotations

import ast
import re

from whichrank.records.settings import UNKNOWN
from whichrank.source.nodes import last_name, walk

_CLIENT = re.compile(r"(?:\S{0,200}/)?(?:ssh|rsh|kubectl|oc)\s")
_HOST = re.compile(r"\w{0,40}(?:host|node|machine|worker|server|addr|ip|pod|target|box)\w{0,20}", re.IGNORECASE)
_MOST_FUNCTIONS = 1_000


class HostLoops:
    """The loops and functions of a program, looked up once."""

    def __init__(self, tree: ast.Module) -> None:
        self.rounds: set[str] = set()
        self.over: list[tuple[int, int, set[str]]] = []
        """First and last line of each loop over hosts, and the variables that it goes through."""
        self.told: list[tuple[int, int, set[str]]] = []
        for node in walk(tree):
            self.rounds.update(each.id for each in _targets(node))
            if isinstance(node, ast.For | ast.AsyncFor) and is_host_loop(node.target, node.iter):
                self.over.append((node.lineno, node.end_lineno or 0, {each.id for each in _targets(node)}))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(self.told) < _MOST_FUNCTIONS:
                names = {each.arg for each in node.args.args if _HOST.fullmatch(each.arg)}
                self.told += [(node.lineno, node.end_lineno or 0, names)] if names else []

    def hold(self, call: ast.Call, command: ast.expr, text: str) -> bool:
        """The command goes to a host that the program takes from a list, or that a function is told."""
        if not _CLIENT.match(text):
            return False
        if text.startswith(f"ssh {UNKNOWN}"):
            return True  # a connection to whichever host it was opened to
        items = command.elts if isinstance(command, ast.List | ast.Tuple) else getattr(command, "values", [command])
        named = {each.id for item in items for each in _names(item)}
        told = [names for start, end, names in self.told if start <= call.lineno <= end]
        return bool(named & self.rounds) or any(named & names for names in told)

    def around(self, call: ast.Call) -> set[str]:
        """Variables of the innermost loop over hosts that a call stands in."""
        found = [names for start, end, names in self.over if start <= call.lineno <= end]
        return found[-1] if found else set()


def is_host_loop(target: ast.expr, source: ast.expr) -> bool:
    """A loop over hosts, by the names that it uses."""
    names = [node.id for node in walk(target) if isinstance(node, ast.Name)]
    names += [last_name(node) for node in walk(source)]
    return any(_HOST.fullmatch(name) for name in names)


def _names(item: ast.AST) -> list[ast.Name]:
    """Names that are a word of the command, or a part of one (`f"user@{host}"`)."""
    if isinstance(item, ast.Call):
        return []
    return [node for node in ast.walk(item) if isinstance(node, ast.Name)]


def _targets(node: ast.AST) -> list[ast.Name]:
    """Names that a loop or a comprehension goes through."""
    target = getattr(node, "target", None) if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else None
    return [each for each in ast.walk(target) if isinstance(each, ast.Name)] if target is not None else []
