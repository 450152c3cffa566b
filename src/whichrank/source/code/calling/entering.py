"""A call of a function or class of the project: noted as an event, and what comes back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.facts.collectives import rank_sources
from whichrank.source.code import libraries
from whichrank.source.code.calling import binding
from whichrank.source.code.calling.decorating import wrapper_of
from whichrank.source.code.calling.sources import environment, of_another, rank_value
from whichrank.source.code.evaluating.choices import AGREED_TAG
from whichrank.source.code.evaluating.types import FRACTION
from whichrank.source.code.events import (
    Enter,
)
from whichrank.source.code.index import Class, Function
from whichrank.source.code.paths.groups import SIZE_NAME
from whichrank.source.code.randomness import seeded_by
from whichrank.source.code.statements.leaving import quit_by
from whichrank.source.code.statements.loops import object_length
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    ParamOrigin,
    Value,
    functions_of,
    join,
    objects_of,
    per_rank,
    substitute,
    union,
)
from whichrank.source.nodes import walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame
    from whichrank.source.code.summaries import Summary

MOST_OVERRIDES = 4
_RANKS = frozenset({"rank", "first", "last", "part"})
_AGREE = frozenset({"broadcast", "broadcast_object_list", "all_reduce", "all_gather", "reduce_boolean_decision"})
"""What every rank has afterwards is the same, also where the project has a function of that name itself."""
_AGREED = Value(tags=frozenset({AGREED_TAG}))
_PROBES = frozenset({"device_count", "is_available", "is_initialized", "is_supported"})
"""What a machine can do is the same on all of them, however a program asks."""


def entered(frame: Frame, made: Call, target: Function) -> Value:
    """A call of a function of the project, what its decorators do and what derived classes do instead included."""
    around = wrapper_of(frame.analysis, target)
    if around is not None:
        wrapper, name = around
        itself = Value(thing=target, tags=frozenset({"itself"}))
        frame.emit(Enter(wrapper, made.node.lineno, frame.function, {name: itself}))
    value = enter(frame, made, target, inside=around is not None)
    if isinstance(made.node.func, ast.Attribute) and made.receiver_text == "self" and target.owner is not None:
        for other in frame.analysis.project.overrides(target.owner, target.name)[:MOST_OVERRIDES]:
            if other is not target and frame.owner is not other.owner:
                value = join([value, enter(frame, made, other)])
    return value


def enter(frame: Frame, made: Call, target: Function, param: str = "", *, inside: bool = False) -> Value:
    """A call of one function: noted as an event, and what comes back."""
    bound = binding.bound(made, target)
    frame.analysis.called(target, bound)
    entry = Enter(target, made.node.lineno, frame.function, bound, param)
    if not inside:
        frame.emit(entry)
    _written_by(frame, made, target)
    summary = frame.analysis.summary(target)
    if summary.groups:
        _passed_groups(frame, made, entry, summary)
    _changed_here(frame, target, summary, bound)
    if summary.seedings:
        seeded_by(frame, target, summary, bound)
    if summary.quits:
        quit_by(frame, summary, target, bound, made.node.lineno)
    alike = made.name in _PROBES or SIZE_NAME.search(made.name) is not None
    returns = _AGREED if made.name in _AGREE else UNKNOWN if alike else summary.returns
    for name, filled in summary.fills.items():
        node = binding.argument_node(made, target, name)
        if node is not None:
            frame.put_into(node, Value(substitute(filled, target, bound)))
    taint = substitute(returns.taint, target, bound)
    length = substitute(summary.turns if summary.generator else returns.length, target, bound)
    if summary.generator and any("loader" in value.tags for value in bound.values()):
        return Value(taint, length, returns.tags | {"loader"})
    tags = frozenset(tag for tag in returns.tags if tag != "itself" or returns.thing is not None)
    if summary.asks_for and (asked := _asked(frame, made, bound.get(summary.asks_for, UNKNOWN), target)) is not None:
        return asked
    source = rank_sources("call").get(made.name)
    own = source is not None and not made.args and not of_another(made)
    if source is not None and own and source.kind in _RANKS and returns.ranks is None:
        return rank_value(frame, made.node, f"{made.name}()", source.kind, source.axis)
    items = tuple(_substituted(item, target, bound) for item in returns.items) if returns.items else returns.items
    cast = substitute(returns.cast, target, bound)
    return returns._replace(taint=taint, length=length, tags=tags, items=items, cast=cast)


def _passed_groups(frame: Frame, made: Call, entry: Enter, summary: Summary) -> None:
    """Which group a parameter of the callee stands for, as the caller writes it."""
    for name in summary.groups:
        node = binding.argument_node(made, entry.function, name)
        if node is not None:
            entry.groups[name] = text = ast.unparse(node)
            if text in frame.function.params:
                frame.groups.add(text)


def _asked(frame: Frame, made: Call, name: Value, target: Function) -> Value | None:
    """A helper around os.environ that is asked for a variable which differs between ranks."""
    if name.ranks is None or not isinstance(name.ranks[0], str):
        return None
    value = environment(frame, made.node, name.ranks[0])
    if not value.taint and value.ranks is None:
        return None
    number = any(isinstance(part, ast.Name) and part.id == "int" for s in target.body for part in walk(s))
    return value._replace(ranks=per_rank(int, value)) if number else value


def _changed_here(frame: Frame, target: Function, summary: Summary, bound: dict[str, Value]) -> None:
    """What a method changes in its object differs afterwards, where only some ranks called it."""
    if target.owner is None or not (summary.counts or summary.grows):
        return
    if summary.grows:
        given = [item for value in bound.values() for item in (value.items or (value,))]
        by = union(*frame.control, frame.left)
        frame.analysis.registered((*objects_of(given), *functions_of(given)), by)
    apart = frozenset(
        origin
        for origin in union(*frame.control, *frame.skips, frame.left)
        if isinstance(origin, ParamOrigin) or origin.kind not in {"rank", "part", "host"}
    )
    for name in summary.counts if apart else ():
        fraction = FRACTION in summary.writes.get(name, UNKNOWN).tags
        frame.analysis.gather(target.owner, name, Value(apart, cast=apart if fraction else CLEAN))
    often = union(apart, *frame.loops)
    for name in summary.grows if often else ():
        frame.analysis.gather(target.owner, name, Value(length=often))


def _written_by(frame: Frame, made: Call, target: Function) -> None:
    """Attributes of self that this function knows, and that a method of the same object may have changed."""
    if made.receiver_text == "self" and frame.paths:
        for name, value in frame.analysis.summary(target).writes.items():
            if (known := frame.paths.get(f"self.{name}")) is not None and known is not value:
                frame.paths[f"self.{name}"] = join([known, value])


def _substituted(value: Value, target: Function, bound: dict[str, Value]) -> Value:
    taint = substitute(value.taint, target, bound)
    return value._replace(taint=taint, length=substitute(value.length, target, bound))


def construct(frame: Frame, made: Call, target: Class) -> Value:
    """An object of a class of the project: its length may depend on what it is made with."""
    init = frame.analysis.project.method(target, "__init__")
    bound = binding.bound(made, init) if init is not None else {}
    if init is None:
        for name, given in {**dict(zip(binding.declared(target), made.args, strict=False)), **made.keywords}.items():
            frame.analysis.gather(target, name, given)
    if init is not None:
        if made.keywords and binding.takes_anything(init):
            for name, given in made.keywords.items():
                frame.analysis.gather(target, name, given)
        frame.analysis.called(init, bound)
        frame.emit(Enter(init, made.node.lineno, frame.function, bound))
    value = Value(thing=target, tags=libraries.class_tags(frame, target))
    if "thread" in value.tags and (run := frame.analysis.project.method(target, "run")) is not None:
        frame.analysis.later("thread", run, frame.function, made.node.lineno)
    return value._replace(length=substitute(object_length(frame, value), init, bound))
