"""Processes that a program starts, and the environments that it hands to them or to a scheduler."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whichrank.facts.variables.environment import catalogue, in_family
from whichrank.records.settings import UNKNOWN
from whichrank.source._constants import Constants, returns
from whichrank.source._environ import Pair, is_environ, named
from whichrank.source._names_only import names_only
from whichrank.source.nodes import last_name
from whichrank.source.places import kept_names
from whichrank.source.places.kept_names import Keeps

_STARTS = frozenset({
    "run", "Popen", "call", "check_call", "check_output", "execve", "execvpe", "execle", "execlpe", "spawnve",
    "spawnvpe", "create_subprocess_exec", "create_subprocess_shell", "system", "popen", "getoutput",
})  # fmt: skip
_ON_HOSTS = frozenset({"exec_command", "run", "sudo", "create_process", "run_command"})
"""Methods of connections to other hosts that run a command there."""
_CONNECTIONS = frozenset({"paramiko", "fabric", "asyncssh", "pssh", "parallel_ssh", "fabric2"})
_MODULES = frozenset({"subprocess", "os", "sp", "asyncio", "sh"})


class Child(NamedTuple):
    """One environment for other processes, with what is known of them."""

    node: ast.AST
    pairs: list[Pair]
    fresh: bool
    """It is not made of os.environ: nothing else gets through."""
    starts: bool
    words: list[tuple[str, int]] | None = None
    script: tuple[str, int] | None = None
    given_at: ast.AST | None = None
    """The dictionary, where it is given to the call."""
    why: str = "the processes that are started get a new environment (env=) without it"
    kept: tuple[Keeps, ...] = ()
    """Of a fresh one: the variables of os.environ that are put into it nevertheless."""

    def lets_through(self, name: str) -> bool:
        """The processes may get what os.environ has under that name."""
        return not self.fresh or any(keeps(name) for keeps in self.kept)


class _Made(NamedTuple):
    """What a dictionary is made of."""

    pairs: list[Pair]
    fresh: bool
    """os.environ as a whole is not among it."""
    kept: tuple[Keeps, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[_Made]) -> _Made:
        """All of them in one dictionary."""
        each = list(parts)
        pairs = [pair for part in each for pair in part.pairs]
        return cls(pairs, all(part.fresh for part in each), tuple(keeps for part in each for keeps in part.kept))


def children(tree: ast.AST, constants: Constants, environ: frozenset[str]) -> Iterator[Child]:
    """Every environment that goes to other processes; each dictionary once."""
    seen: set[int] = set()
    reader = _Dictionaries(constants, environ, names_only(tree, constants), tree)
    for node in ast.walk(tree):
        for child in _found(node, reader):
            pairs = [pair for pair in child.pairs if id(pair[2]) not in seen]
            seen.update(id(pair[2]) for pair in pairs)
            yield child._replace(pairs=child.pairs if child.starts else pairs)


def _connects(tree: ast.AST) -> bool:
    """The program imports a library for commands on other hosts."""
    return any(
        (isinstance(node, ast.Import) and any(name.name.split(".")[0] in _CONNECTIONS for name in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _CONNECTIONS)
        for node in ast.walk(tree)
    )


def _found(node: ast.AST, reader: _Dictionaries) -> Iterator[Child]:
    if isinstance(node, ast.Call):
        yield from _call(node, reader)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not is_environ(target.value, reader.environ):
                if _speaks_of_env(target.value):
                    yield Child(node, list(named(target.slice, node.value, node)), fresh=False, starts=False)
            elif _speaks_of_env(target) and isinstance(node.value, ast.Dict | ast.Call):
                yield Child(node, reader.pairs(node.value).pairs, fresh=False, starts=False)
    elif isinstance(node, ast.Dict):
        yield from _dictionary(node, reader)
    elif isinstance(node, ast.FunctionDef) and "env" in node.name.lower():
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Dict):
                yield Child(inner, reader.pairs(inner.value).pairs, fresh=False, starts=False)


def _dictionary(node: ast.Dict, reader: _Dictionaries) -> Iterator[Child]:
    """`{"env_vars": {…}}`, and `{"name": NAME, "value": VALUE}` of container specifications."""
    keys = {
        key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
    }
    for key, value in keys.items():
        if isinstance(key, str) and "env" in key.lower():
            yield Child(value, reader.pairs(value).pairs, fresh=False, starts=False)
    if any(isinstance(key, str) and key in catalogue() for key in keys):  # settings under any name
        yield Child(node, reader.pairs(node).pairs, fresh=False, starts=False)
    if {"name", "value"} <= keys.keys() and isinstance(keys["name"], ast.Constant):
        yield Child(node, [(str(keys["name"].value), keys["value"], keys["name"])], fresh=False, starts=False)


def _call(node: ast.Call, reader: _Dictionaries) -> Iterator[Child]:
    name = (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    if {"name", "value"} <= keys_of(keywords) and isinstance(keywords["name"], ast.Constant):
        yield Child(node, [(str(keywords["name"].value), keywords["value"], node)], fresh=False, starts=False)
    if name in {"set_env_variable", "add_env_variable", "setenv", "env_var"} and len(node.args) == 2:
        yield Child(node, list(named(node.args[0], node.args[1], node)), fresh=False, starts=False)
    if name == "init" and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "ray":
        yield from _ray(node, keywords, reader)
        return
    if name == "submit_job" and "entrypoint" in keywords:
        yield from _submitted(node, keywords, reader)
        return
    if name in _ON_HOSTS and reader.connects and node.args and not _of_module(node.func):
        text = reader.constants.text(reader.constants.resolve(node.args[0]))
        if re.search(r"\b(?:torchrun|torch\.distributed|accelerate|deepspeed)\b", text):
            yield Child(node, [], False, True, script=(f"ssh {UNKNOWN} {shlex.quote(text)}", node.args[0].lineno))
        return
    if name in _STARTS and _of_module(node.func):
        yield _started(node, name, keywords, reader)
        return
    for key, value in keywords.items():
        if "env" in key.lower():
            yield Child(node, reader.pairs(value).pairs, fresh=False, starts=False)


def keys_of(keywords: dict[str, ast.expr]) -> set[str]:
    return set(keywords)


def _ray(node: ast.Call, keywords: dict[str, ast.expr], reader: _Dictionaries) -> Iterator[Child]:
    """Workers of a cluster that runs already don't see the driver's os.environ."""
    pairs, known = _runtime_environment(keywords, reader)
    elsewhere = "address" in keywords or bool(node.args)
    why = "the workers of a Ray cluster don't see the driver's os.environ"
    yield Child(node, pairs, fresh=elsewhere and known, starts=elsewhere and known, why=why)


def _submitted(node: ast.Call, keywords: dict[str, ast.expr], reader: _Dictionaries) -> Iterator[Child]:
    """`client.submit_job(entrypoint=…, runtime_env=…)`: the cluster runs it, with nothing of this program."""
    pairs, known = _runtime_environment(keywords, reader)
    text = reader.constants.text(reader.constants.resolve(keywords["entrypoint"]))
    script = f"ray job submit --runtime-env x -- {text}", keywords["entrypoint"].lineno
    why = "the job runs on the cluster, which does not see the os.environ of the program that submits it"
    yield Child(node, pairs, fresh=known, starts=known, script=script, why=why)


def _runtime_environment(keywords: dict[str, ast.expr], reader: _Dictionaries) -> tuple[list[Pair], bool]:
    """The env_vars of a call, and whether that is all of them."""
    environment = reader.constants.resolve(keywords["runtime_env"]) if "runtime_env" in keywords else None
    pairs: list[Pair] = []
    for key, value in (
        zip(environment.keys, environment.values, strict=True) if isinstance(environment, ast.Dict) else ()
    ):
        if isinstance(key, ast.Constant) and key.value == "env_vars":
            pairs = reader.pairs(value).pairs
    return pairs, environment is None or isinstance(environment, ast.Dict)


def _started(node: ast.Call, name: str, keywords: dict[str, ast.expr], reader: _Dictionaries) -> Child:
    environment = keywords.get("env")
    if environment is None and name in {"execve", "execvpe", "spawnve", "spawnvpe"} and node.args:
        environment = node.args[-1]
    made = _UNKNOWN
    if environment is not None and not (isinstance(environment, ast.Constant) and environment.value is None):
        made = reader.pairs(environment)
    first = node.args[0] if node.args else keywords.get("args")
    if name.startswith(("exec", "spawn")) and len(node.args) > 1:
        first = node.args[1]
    words = reader.constants.strings(first) if first is not None else None
    script = None
    if words is None and first is not None:
        text = reader.constants.text(reader.constants.resolve(first))
        if text.strip("\0 "):
            script = (text, first.lineno)
    return Child(node, made.pairs, made.fresh, True, words, script, environment, kept=made.kept)


def _of_module(func: ast.expr) -> bool:
    if isinstance(func, ast.Attribute):
        owner = func.value
        return isinstance(owner, ast.Name) and owner.id in _MODULES
    return isinstance(func, ast.Name) and func.id in {"Popen", "check_call", "check_output", "execvpe", "execve"}


_UNKNOWN = _Made([], fresh=False)


class _Dictionaries:
    """Dictionaries taken apart: their pairs, and whether os.environ is not among what they are made of."""

    def __init__(
        self, constants: Constants, environ: frozenset[str], names_only: frozenset[int], tree: ast.AST
    ) -> None:
        self.constants, self.environ, self.names_only = constants, environ, names_only
        self.connects = _connects(tree)
        self.loops = kept_names.Loops(tree)

    def pairs(self, node: ast.expr, depth: int = 0) -> _Made:
        if depth > 6 or is_environ(node, self.environ):
            return _UNKNOWN
        if isinstance(node, ast.Dict):
            return self._literal(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _Made.of((self.pairs(node.left, depth + 1), self.pairs(node.right, depth + 1)))
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Name) and len(values := self.constants.values_of(node)) == 1:
            later = [self._added(*each) for each in self.constants.added_to(node)]
            made = _Made.of((self.pairs(values[0], depth + 1), *later))
            made = made._replace(fresh=made.fresh and node.id not in self.constants.updated)
            drops = self.loops.drops(node.id, self.constants) if not made.fresh else []
            return _Made(made.pairs, True, (lambda name: not any(d(name) for d in drops),)) if drops else made
        if (keeps := kept_names.by_comprehension(node, self.constants, self.environ)) is not None:
            return _Made([], fresh=True, kept=(keeps,))
        return _UNKNOWN

    def _added(self, key: ast.expr, value: ast.expr, place: ast.AST) -> _Made:
        """An element that is put in later; one whose name nobody knows may be any."""
        if isinstance(key, ast.Constant):
            return _Made(list(named(key, value, place)), fresh=True)
        keeps = self.loops.keeps(key, place, self.constants, self.environ)
        return _UNKNOWN if keeps is None else _Made([], fresh=True, kept=(keeps,))

    def _literal(self, node: ast.Dict, depth: int) -> _Made:
        if id(node) in self.names_only:
            return _Made([], fresh=True)
        return _Made.of(
            self.pairs(value, depth + 1) if key is None else _Made(list(named(key, value, key)), fresh=True)
            for key, value in zip(node.keys, node.values, strict=True)
        )

    def _call(self, node: ast.Call, depth: int) -> _Made:
        if isinstance(node.func, ast.Name) and node.func.id == "dict":
            made = _Made([(k.arg, k.value, k.value) for k in node.keywords if k.arg], fresh=True)
            taken = [*node.args, *(k.value for k in node.keywords if k.arg is None)]
            return _Made.of((made, *(self.pairs(argument, depth + 1) for argument in taken)))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "copy":
            return self.pairs(node.func.value, depth + 1)
        own = isinstance(node.func, ast.Attribute) and last_name(node.func.value) in {"self", "cls"}
        called = last_name(node.func) if own or isinstance(node.func, ast.Name) else ""
        function = self.constants.functions.get(called)
        returned = list(returns(function)) if function is not None else []
        return self.pairs(returned[0], depth + 1) if len(returned) == 1 else _UNKNOWN


def _speaks_of_env(node: ast.AST) -> bool:
    name = last_name(node)
    return bool(re.search(r"env", name, re.IGNORECASE)) or (bool(name) and (in_family(name) or name in catalogue()))
