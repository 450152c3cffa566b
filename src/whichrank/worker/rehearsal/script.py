"""The user's script as the main program, with a probe at the beginning of every `try` that swallows."""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from whichrank.worker.rehearsal import client

PROBE, CAUGHT = "__whichrank_try__", "__whichrank_caught__"
WORDS = 40
"""Caught errors that a rank tells."""
NOT_INJECTED = (StopIteration, ImportError, AttributeError, KeyboardInterrupt, GeneratorExit, NotImplementedError)
ENDS = ("exit", "_exit", "abort", "kill", "destroy_process_group")


class Plan:
    """The probe at which this rank is to fail, in an exploration."""

    place: tuple[str, int] | None = None
    guilty = False
    seen: set[tuple[str, int]]
    words = 0


def swallows(node: ast.Try) -> ast.ExceptHandler | None:
    """The first handler that neither raises again nor ends the process."""
    for handler in node.handlers:
        inner = list(ast.walk(ast.Module(handler.body, [])))
        raises = any(isinstance(one, ast.Raise) for one in inner)
        names = {one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
                 for one in inner if isinstance(one, ast.Call)}  # fmt: skip
        if not raises and not names & set(ENDS):
            return handler
    return None


def can_fail(node: ast.Try) -> bool:
    """Whether something other than communication stands first in it."""
    first = node.body[0]
    if isinstance(first, (ast.Import, ast.ImportFrom, ast.Pass)):
        return False
    calls = [ast.unparse(one.func) for one in ast.walk(first) if isinstance(one, ast.Call)]
    works = [one for one in ast.walk(first) if isinstance(one, (ast.Call, ast.Subscript, ast.For, ast.With, ast.BinOp))]
    return bool(works) and not (calls and all(name.startswith(("dist.", "torch.distributed")) for name in calls))


class Probes(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Try(self, node: ast.Try) -> ast.Try:
        self.generic_visit(node)
        handler = swallows(node)
        if handler is not None and can_fail(node):
            kind = handler.type or ast.Name("Exception", ast.Load())
            nobody = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            arguments = [ast.Constant(self.name), ast.Constant(node.lineno), ast.Lambda(nobody, kind)]
            probe = ast.Expr(ast.Call(ast.Name(PROBE, ast.Load()), arguments, []))
            first = node.body[0]
            for one in ast.walk(probe):
                one.lineno, one.col_offset, one.end_lineno, one.end_col_offset = first.lineno, 0, first.lineno, 0  # type: ignore[attr-defined]
            node.body.insert(0, probe)
        if handler is not None:
            self.watch(node)
        return node

    def watch(self, node: ast.Try) -> None:
        """A word from every handler that swallows."""
        for handler in node.handlers:
            arguments: list[ast.expr] = [ast.Constant(self.name), ast.Constant(node.lineno)]
            arguments.append(ast.Constant(max(one.end_lineno or one.lineno for one in node.body)))
            word: ast.stmt = ast.Expr(ast.Call(ast.Name(CAUGHT, ast.Load()), arguments, []))
            for one in ast.walk(word):
                one.lineno, one.col_offset, one.end_lineno, one.end_col_offset = handler.lineno, 0, handler.lineno, 0  # type: ignore[attr-defined]
            handler.body.insert(0, word)


def probe(name: str, line: int, kinds: Callable[[], Any]) -> None:
    """Called by the script at the beginning of such a `try`."""
    place = (name, line)
    if place not in Plan.seen and client.current() is not None:
        Plan.seen.add(place)
        client.note("try", file=name, line=line)
    if Plan.guilty and place == Plan.place:
        Plan.place = None
        failure = exception(kinds())
        if failure is not None:
            client.note("injected", error=type(failure).__name__)
            raise failure


def caught(name: str, line: int, last: int) -> None:
    """Called by the script when one of its handlers runs."""
    if client.current() is not None and Plan.words < WORDS:
        Plan.words += 1
        error = sys.exc_info()[1]
        client.note("caught", file=name, line=line, last=last, error=f"{type(error).__name__}: {error}"[:200])


def exception(kinds: Any) -> BaseException | None:
    """One that the handler catches, if it is of a kind that happens to one rank alone."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, NOT_INJECTED):
            continue
        chosen = RuntimeError if kind is Exception else kind
        try:
            return chosen("an error on this rank alone (injected by the rehearsal)")
        except TypeError:
            continue
    return None


def compiled(path: str) -> CodeType:
    data = Path(path).read_bytes()
    tree = ast.parse(data, path)
    try:
        return compile(ast.fix_missing_locations(Probes(path).visit(tree)), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return compile(data, path, "exec", dont_inherit=True)


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        return compiled(self.get_filename(fullname))


class Finder:
    """Modules below the script's folder get probes, too."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            return spec
        if client.Settings.owns(spec.origin):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def run(path: str, arguments: list[str], module: str | None = None) -> None:
    """As `python SCRIPT ARGUMENTS…` would; `module` for `python -m`."""
    Plan.seen = set()
    setattr(builtins, PROBE, probe)
    setattr(builtins, CAUGHT, caught)
    sys.meta_path.insert(0, Finder)
    sys.argv = [path, *arguments]
    sys.path[0] = os.getcwd() if module else str(Path(path).parent)  # noqa: PTH109
    if module:
        import runpy

        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    main = ModuleType("__main__")
    main.__file__ = path
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    exec(compiled(path), main.__dict__)  # noqa: S102 - the user's own script, which is what a rehearsal runs
