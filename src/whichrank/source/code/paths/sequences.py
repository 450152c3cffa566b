"""What each path communicates, as sequences that can be compared."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.events import Attempt, Enter, Event, First, Fork, Leave, Loop, Op, blocks
from whichrank.source.code.index import Function, resolve
from whichrank.source.code.values import Callee, Value, differs, functions_of
from whichrank.source.nodes import FUNCTIONS, calls_any, dotted, last_name, own, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from whichrank.source.code.analysis import Analysis

P2P = frozenset({"send", "recv", "isend", "irecv", "batch"})
QUIET = frozenset(
    {
        "rank_zero_only",
        "on_main_process",
        "on_local_main_process",
        "on_last_process",
        "master_only",
        "main_process_only",
        "rank0_only",
    }
)
LONGEST = 200
DEEPEST = 8


class Step(NamedTuple):
    """One operation on a path, with the calls that lead to it; a loop or a shared branch has a key of several."""

    key: tuple[object, ...]
    op: Op
    via: tuple[Enter, ...] = ()
    sure: bool = True
    """Whether the path always comes here, once it is taken."""

    @property
    def line(self) -> int:
        """Where the path calls it, or what leads to it."""
        return self.via[0].line if self.via else self.op.line


class Sequences:
    """Flattens events; what functions do is worked out once."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.known: dict[Function, list[Step]] = {}
        self.quiet: dict[Function, bool] = {}
        self.takes: dict[Function, frozenset[str]] = {}
        self.passed: dict[str, tuple[Callee, ...]] = {}
        """The functions that the call being followed passed, by the name of the parameter."""

    def of_function(
        self, function: Function, depth: int = 0, arguments: Mapping[str, Value] | None = None
    ) -> list[Step]:
        if self.on_one_rank(function):
            return []
        kept, self.passed = self.passed, self._functions(function, arguments)
        try:
            if self.passed:  # what it does depends on what it was passed
                return self.of(self.analysis.summary(function).events, depth + 1)
            return self._plainly(function, depth)
        finally:
            self.passed = kept

    def _functions(self, function: Function, arguments: Mapping[str, Value] | None) -> dict[str, tuple[Callee, ...]]:
        """The functions among the arguments of a call that the callee calls in turn."""
        if not arguments:
            return {}
        if function not in self.takes:
            self.takes[function] = frozenset(_called_params(self.analysis.summary(function).events))
        named = ((name, functions_of([arguments[name]])) for name in self.takes[function] if name in arguments)
        return {name: functions for name, functions in named if functions}

    def _plainly(self, function: Function, depth: int) -> list[Step]:
        known = self.known.get(function)
        if known is None:
            self.known[function] = []  # while it is worked out
            known = self.known[function] = self.of(self.analysis.summary(function).events, depth + 1)
        return known

    def on_one_rank(self, function: Function) -> bool:
        """Whether a decorator lets one rank run it: a known one, or one of the project that asks for the rank."""
        if function.node is None or not function.node.decorator_list:
            return False
        if function not in self.quiet:
            self.quiet[function] = any(name in QUIET for name in function.decorators()) or any(
                self._guards(function, item) for item in function.node.decorator_list
            )
        return self.quiet[function]

    def _guards(self, function: Function, decorator: ast.expr) -> bool:
        text = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        found = self.analysis.project.find(resolve(function.module, text)) if text else None
        if not isinstance(found, Function) or found.node is None or not found.params:
            return False
        wrapped = {found.params[0], *(f.params[0] for f in found.module.everything if f.parent is found and f.params)}
        return any(isinstance(node, FUNCTIONS) and _parts_ranks(node, wrapped) for node in walk(found.node))

    def of(self, events: Iterable[Event], depth: int = 0, assumed: Mapping[str, bool] | None = None) -> list[Step]:
        """The operations of a path; point-to-point operations are matched elsewhere."""
        steps: list[Step] = []
        for event in events:
            if isinstance(event, Leave):
                break
            if len(steps) > LONGEST or depth > DEEPEST:
                break
            steps += self._one(event, depth, assumed)
        return steps

    def _one(self, event: Event, depth: int, assumed: Mapping[str, bool] | None) -> list[Step]:
        if isinstance(event, Op):
            return [Step((event.name, event.group), event)] if event.kind not in P2P else []
        if isinstance(event, Enter):
            wanted = self.passed.get(event.param) if event.param else None
            if wanted and event.function not in wanted:
                return []
            inner = self.of_function(event.function, depth, event.arguments)
            return [Step(_renamed(step.key, event.groups), step.op, (event, *step.via), step.sure) for step in inner]
        if isinstance(event, Fork):
            return self._fork(event, depth, assumed)
        if isinstance(event, Loop):
            body = self.of(event.body, depth, assumed)
            return _folded(("loop", *keys(body)), body, body[0].sure) if body else []
        if isinstance(event, First):
            return self.of(event.body, depth, assumed)
        if isinstance(event, Attempt):
            blocks = (event.body, event.orelse, event.final)
            return [step for block in blocks for step in self.of(block, depth, assumed)]
        return []

    def _fork(self, event: Fork, depth: int, assumed: Mapping[str, bool] | None) -> list[Step]:
        if assumed and event.text in assumed:
            return self.of(event.then if assumed[event.text] else event.other, depth, assumed)
        one, two = self.of(event.then, depth, assumed), self.of(event.other, depth, assumed)
        if keys(one) == keys(two):
            return one
        if differs(event.test):
            return max(one, two, key=len)
        return _folded(("if", event.text, keys(one), keys(two)), [*one, *two], False)


def _renamed(key: tuple[object, ...], groups: Mapping[str, str]) -> tuple[object, ...]:
    """A key with the caller's groups instead of the callee's parameters."""
    if not groups:
        return key
    if len(key) == 2 and isinstance(key[1], str) and key[1] in groups:
        return key[0], groups[key[1]]
    return tuple(_renamed(part, groups) if isinstance(part, tuple) else part for part in key)


def _called_params(events: Iterable[Event]) -> Iterable[str]:
    """The parameters that are called somewhere in there."""
    for event in events:
        if isinstance(event, Enter) and event.param:
            yield event.param
        for block in blocks(event):
            yield from _called_params(block)


def _folded(key: tuple[object, ...], steps: list[Step], sure: bool) -> list[Step]:
    """A loop or a branch as one key; its further operations are shown, but are part of that key."""
    first, *rest = steps
    return [Step(key, first.op, first.via, sure), *(Step((), step.op, step.via, sure) for step in rest)]


def _parts_ranks(function: ast.AST, wrapped: set[str]) -> bool:
    """Whether a function lets some ranks alone call what it wraps, or come to the call of it."""
    for node in own(function):
        if isinstance(node, ast.If) and _asks_rank(node.test):
            here, others = (any(calls_any(part, wrapped) for part in arm) for arm in (node.body, node.orelse))
            leaves = isinstance(node.body[-1], ast.Return) and not here and not others
            behind = (isinstance(n, ast.Call) and last_name(n.func) in wrapped for n in own(function))
            if (here and not others) or (leaves and any(behind)):
                return True
    return False


def _asks_rank(test: ast.expr) -> bool:
    names = {last_name(node) for node in walk(test) if isinstance(node, ast.Name | ast.Attribute)}
    return bool(names & (rank_sources("call").keys() | rank_sources("attribute").keys()))


def keys(steps: Iterable[Step]) -> tuple[tuple[object, ...], ...]:
    return tuple(step.key for step in steps if step.key)
