"""Meeting points in the commands of a program: made anew for each host, or named after the host that runs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from whichrank.source._constants import Constants
from whichrank.source.nodes import dotted, last_name, walk
from whichrank.source.places.host_loops import is_host_loop

_OPTION = re.compile(
    r"(?:^|\s)(--(?:master[-_](?:addr|port)|main[-_]process[-_](?:ip|port)|rdzv[-_](?:id|endpoint)))"
    r"(?:[= ][\"']?([^\s=]{0,80}))?$"
)
_DRAWN = re.compile(
    r"\brandom\.\w{1,20}\(|\b(?:randint|randrange|getsockname|token_hex|token_urlsafe|uuid1|uuid4)\("
    r"|\b\w{0,20}free_\w{0,20}port\w{0,20}\(|\btime\.time(?:_ns)?\(|\b(?:now|utcnow)\("
)
_NAME_ITSELF = frozenset({"gethostname", "getfqdn", "node", "uname"})
_ADDRESSES = re.compile(r"--(?:master[-_]addr|main[-_]process[-_]ip|rdzv[-_]endpoint)")
_DEEPEST, _MOST, _MOST_NODES = 8, 400, 40


class Part(NamedTuple):
    """An expression that is put into the value of an option."""

    option: str
    first: bool
    """The value begins with it."""
    node: ast.expr

    @property
    def is_address(self) -> bool:
        return bool(_ADDRESSES.fullmatch(self.option)) and self.first


def parts(command: ast.expr, constants: Constants) -> Iterator[Part]:
    """Of the command that a call starts, as a list of words or a text, put together by names and functions."""
    waiting = [(command, 0)]
    for _ in range(_MOST):
        if not waiting:
            return
        node, depth = waiting.pop()
        if depth > _DEEPEST:
            continue
        before = ""
        for piece in _pieces(node):
            if isinstance(piece, ast.Constant):
                before = f"{before}{piece.value}" if isinstance(piece.value, str) else ""
                before = before[-200:]
                continue
            told = _OPTION.search(before)
            if told:
                yield Part(told[1], not told[2], piece)
            before = f"{before}\0"
            known = constants.resolve(piece) if not isinstance(piece, ast.JoinedStr) else piece
            if known is not node and not told and isinstance(known, ast.JoinedStr | ast.List | ast.Tuple | ast.BinOp):
                waiting.append((known, depth + 1))


def _pieces(node: ast.expr) -> list[ast.expr]:
    """What a text or a list of words is made of, with a blank between words."""
    if isinstance(node, ast.JoinedStr):
        return [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_pieces(node.left), *_pieces(node.right)]
    if isinstance(node, ast.List | ast.Tuple):
        found: list[ast.expr] = []
        for word in node.elts:
            inner = word.value if isinstance(word, ast.Starred) else word
            found += [*(_pieces(inner) if isinstance(inner, ast.JoinedStr) else [inner]), ast.Constant(" ")]
        return found
    return [node]


def named_after_itself(command: ast.expr, constants: Constants) -> Iterator[Part]:
    """Addresses that are the name of the host that runs the program."""
    for part in parts(command, constants):
        if part.is_address and is_own_name(part.node, constants):
            yield part


def is_own_name(node: ast.expr, constants: Constants) -> bool:
    """The name or the address of the host that runs the program: `socket.gethostname()`, `platform.node()`."""
    return any(
        isinstance(each, ast.Call)
        and last_name(each.func) in _NAME_ITSELF
        and dotted(each.func).startswith(("socket.", "platform.", "os.", "gethostname", "getfqdn"))
        for each in islice(ast.walk(constants.resolve(node)), _MOST_NODES)
    )


_PLAIN = (
    ast.Name,
    ast.Constant,
    ast.BinOp,
    ast.operator,
    ast.Subscript,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.expr_context,
)


def of_each_round(command: ast.expr, constants: Constants, names: set[str]) -> Iterator[Part]:
    """Parts of the meeting point that are made of what a loop over hosts goes through: `--master-port={29500 + i}`."""
    for part in parts(command, constants):
        nodes = list(islice(ast.walk(part.node), _MOST_NODES))
        own = any(isinstance(node, ast.Name) and node.id in names for node in nodes)
        if own and all(isinstance(node, _PLAIN) for node in nodes):
            yield part


class Repeated:
    """The parts of a program that run anew for each host."""

    def __init__(self, tree: ast.Module, constants: Constants) -> None:
        self.constants = constants
        self.nodes: set[int] = set()
        functions = dict(constants.functions)
        waiting = [part for loop in walk(tree) for part in _bodies(loop)]
        while waiting:
            for node in walk(waiting.pop()):
                self.nodes.add(id(node))
                called = functions.pop(last_name(node.func), None) if isinstance(node, ast.Call) else None
                waiting += called.body if called is not None else []

    def drawn(self, node: ast.expr) -> ast.expr | None:
        """The expression that makes something random or takes the time, in such a part; None for any other."""
        waiting = [node]
        for _ in range(_MOST_NODES):
            if not waiting:
                break
            made = waiting.pop()
            for each in islice(ast.walk(made), _MOST_NODES):
                if isinstance(each, ast.Call) and id(each) in self.nodes and _DRAWN.search(f"{dotted(each.func)}("):
                    return made
                values = self.constants.values_of(each) if isinstance(each, ast.Name) else []
                waiting += values if len(values) == 1 else []
        return None


def _bodies(loop: ast.AST) -> list[ast.AST]:
    """What runs once for each host that a loop or a comprehension goes through."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        return list(loop.body) if is_host_loop(loop.target, loop.iter) else []
    if isinstance(loop, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        made = loop.generators[-1]
        return [loop.elt] if is_host_loop(made.target, made.iter) else []
    return []
