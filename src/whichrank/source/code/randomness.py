"""Random numbers: which generators a program seeds, and which of them a call draws from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.index import Module, resolve
from whichrank.source.code.values import substitute
from whichrank.source.nodes import dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame
    from whichrank.source.code.index import Function
    from whichrank.source.code.summaries import Summary
    from whichrank.source.code.values import Taint, Value

LIBRARIES = ("torch", "numpy", "random")
_SEEDS = frozenset({"manual_seed", "seed", "seed_everything", "set_seed", "manual_seed_all", "init_seeds", "fix_seed"})

_OF_ONE_GENERATOR = frozenset({"manual_seed", "seed"})
"""Methods that seed the object that they are called on: `torch.Generator().manual_seed(0)`, `env.seed(0)`."""


def seeds(module: Module) -> Iterator[str]:
    """The libraries whose generators a file seeds alike on all ranks; a helper of another library seeds all."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in _SEEDS and node.args:
            names = {last_name(n) for n in walk(node.args[0]) if isinstance(n, ast.Name | ast.Attribute)}
            if (
                not names & rank_sources("attribute").keys()
                and "get_rank" not in names
                and not _own(module, node.args[0])
            ):
                text = dotted(node.func)
                library = library_of(resolve(module, text) if text else "")
                if library:
                    yield library
                elif isinstance(node.func, ast.Name) or last_name(node.func) not in _OF_ONE_GENERATOR:
                    yield from LIBRARIES


def _seeded_by(node: ast.Call, full: str) -> tuple[str, ...]:
    """The libraries that a call seeds."""
    if library := library_of(full):
        return (library,)
    return LIBRARIES if isinstance(node.func, ast.Name) or last_name(node.func) not in _OF_ONE_GENERATOR else ()


def _own(module: Module, seed: ast.expr) -> bool:
    """Whether a seed is made of the clock, the process number or the like."""
    called = (dotted(node.func) for node in walk(seed) if isinstance(node, ast.Call))
    return any(text and resolve(module, text) in rank_sources("function") for text in called)


def library_of(full: str) -> str:
    """The library whose generator a function uses; empty where no seed helps: `uuid.uuid4`."""
    root = full.partition(".")[0]
    return root if root in LIBRARIES else ""


def seeding(frame: Frame, made: Call) -> None:
    """A seed is set: what it is made of may differ between ranks."""
    if made.name in _SEEDS and made.args:
        for library in _seeded_by(made.node, made.full):
            _set(frame, library, made.args[0].taint)


def seeded_by(frame: Frame, target: Function, summary: Summary, bound: dict[str, Value]) -> None:
    """A helper that sets seeds is called: with what this call passes, whatever other calls do."""
    for library, taint in list(summary.seedings):
        _set(frame, library, substitute(taint, target, bound))


def _set(frame: Frame, library: str, taint: Taint) -> None:
    frame.seedings.add((library, taint))
    frame.analysis.notes.seedings.add((library, taint))
