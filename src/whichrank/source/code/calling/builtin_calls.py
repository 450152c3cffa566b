"""Python's own functions: what is known of len(), range(), zip() and the like."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.source.code.calling.implicit import operator_method
from whichrank.source.code.evaluating.equal_sizes import even_share, rows_of
from whichrank.source.code.evaluating.expressions import AMOUNT, evaluate, mixed
from whichrank.source.code.evaluating.names import ALIAS
from whichrank.source.code.evaluating.ordering import REVERSED
from whichrank.source.code.events import Risk
from whichrank.source.code.index import Function
from whichrank.source.code.statements.loops import COUNTER, elements, object_length
from whichrank.source.code.values import CLEAN, NO_TAGS, UNKNOWN, Origin, Taint, Value, per_rank, union

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame


def _length(frame: Frame, made: Call) -> Value:
    value = made.args[0] if made.args else UNKNOWN
    operator_method(frame, value, made.node, "__len__")
    taint = union(value.length, object_length(frame, value))
    if "element" in value.tags or not value.length:
        taint = union(taint, frozenset(o for o in value.taint if isinstance(o, Origin) and o.kind == "data"))
    tags = rows_of(made.node.args[0]) if made.node.args else NO_TAGS
    return Value(taint, tags=tags, ranks=per_rank(len, value))


def _shown(frame: Frame, made: Call) -> Value:
    """print(), str(): objects say what they are."""
    for value in made.args:
        operator_method(frame, value, made.node, "__str__", "__repr__")
    return UNKNOWN if made.name == "print" else mixed(made.args)


def _filter(frame: Frame, made: Call) -> Value:
    """filter(): as many elements as the condition lets through."""
    if len(made.args) < 2:
        return UNKNOWN
    condition, kept = made.args[0], made.args[1]
    if isinstance(made.node.args[0], ast.Lambda):
        taint = _asked(frame, made.node.args[0], elements(frame, kept, made.node))
    else:
        asked = frame.analysis.summary(condition.thing).returns if isinstance(condition.thing, Function) else UNKNOWN
        taint = frozenset(origin for origin in asked.taint if isinstance(origin, Origin))
    return Value(kept.taint, union(kept.length, taint), kept.tags - {"itself"})


def _asked(frame: Frame, condition: ast.Lambda, element: Value) -> Taint:
    """What a condition without a name says of an element."""
    saved = dict(frame.env)
    for argument in condition.args.args[:1]:
        frame.env[argument.arg] = element
    taint = frame.aside(condition.body)[1].taint
    frame.env = saved
    return taint


def _range(_frame: Frame, made: Call) -> Value:
    taint = union(*(value.taint for value in made.args))
    ranks = per_rank(_small_range, *made.args) if made.args else None
    if len(made.args) == 3 and even_share(UNKNOWN, *made.args[1:]):
        taint = CLEAN
    return Value(CLEAN, taint, frozenset({COUNTER}), ranks)


def _small_range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers) > 64:
        raise OverflowError
    return list(numbers)


def _wrapper(tag: str) -> Callable[[Frame, Call], Value]:
    def wrap(_frame: Frame, made: Call) -> Value:
        return Value(tags=frozenset({tag}), items=tuple(made.args))

    return wrap


def _kept(function: Callable[..., Any] | None) -> Callable[[Frame, Call], Value]:
    """list(), sorted(), tuple(): the same elements; int(), min(): computed."""

    def keep(_frame: Frame, made: Call) -> Value:
        if not made.args:
            return UNKNOWN
        first = made.args[0]
        ranks = per_rank(function, *made.args) if function is not None and not made.keywords else None
        tags = first.tags - {"set", "element", "itself"}
        if made.name == "reversed":
            tags ^= {REVERSED}
        order = CLEAN if made.name == "sorted" else first.order
        return mixed(made.args)._replace(length=first.length, ranks=ranks, tags=tags, items=None, order=order)

    return keep


def _number(function: Callable[..., Any]) -> Callable[[Frame, Call], Value]:
    def compute(_frame: Frame, made: Call) -> Value:
        value = mixed(made.args)._replace(ranks=per_rank(function, *made.args) if made.args else None)
        return value.tagged(AMOUNT) if value.taint else value

    return compute


def _make_set(_frame: Frame, made: Call) -> Value:
    if not made.args:
        return Value(tags=frozenset({"set"}))
    return made.args[0]._replace(tags=frozenset({"set"}), ranks=per_rank(set, made.args[0]), items=None)


def _endless(_frame: Frame, _made: Call) -> Value:
    return Value(tags=frozenset({"endless"}))


def _next(frame: Frame, made: Call) -> Value:
    if frame.trying:
        origin = Origin("exception", "next() may fail on one rank alone", *frame.at(made.node))
        frame.emit(Risk(origin, made.node.lineno))
    if not made.args:
        return UNKNOWN
    operator_method(frame, made.args[0], made.node, "__next__")
    value = elements(frame, made.args[0], made.node)
    if len(made.args) > 1:  # the default comes back where this rank has run out
        value = value._replace(taint=union(value.taint, made.args[0].length), ranks=None).tagged("optional")
    return value


def _partial(frame: Frame, made: Call) -> Value:
    """functools.partial: the function, with what it was given already."""
    first = made.args[0] if made.args else UNKNOWN
    if any(tag.startswith(ALIAS) for tag in first.tags):
        return first._replace(items=tuple(made.args[1:]), fields=made.keywords).tagged("partial")
    if first.thing is None or "itself" not in first.tags:
        return UNKNOWN
    if isinstance(first.thing, Function):
        params = [name for name in first.thing.params if not (first.thing.is_method and name in {"self", "cls"})]
        frame.analysis.called(first.thing, {**dict(zip(params, made.args[1:], strict=False)), **made.keywords})
    return first._replace(items=tuple(made.args[1:]), fields=made.keywords).tagged("partial")


def _record(_frame: Frame, made: Call) -> Value:
    """dict(a=…), SimpleNamespace(a=…): values by name."""
    if made.args or "**" in made.keywords:
        return mixed([*made.args, *made.keywords.values()])
    return mixed(list(made.keywords.values()))._replace(fields=dict(made.keywords)).tagged("dict")


def _getattr(frame: Frame, made: Call) -> Value:
    if len(made.node.args) > 1 and isinstance(made.node.args[1], ast.Constant):
        attribute = ast.Attribute(made.node.args[0], str(made.node.args[1].value), ast.Load())
        return evaluate(frame, ast.copy_location(attribute, made.node))
    return UNKNOWN


FILTERS = ("filter", "takewhile", "dropwhile", "filterfalse")
BUILTINS: dict[str, Callable[[Frame, Call], Value]] = {
    "len": _length, "range": _range, "enumerate": _wrapper("enumerate"), "zip": _wrapper("zip"), "list": _kept(list),
    "tuple": _kept(tuple), "sorted": _kept(sorted), "reversed": _kept(None), "iter": _kept(None), "tqdm": _kept(None),
    "track": _kept(None), "set": _make_set, "frozenset": _make_set, "int": _number(int), "bool": _number(bool),
    "abs": _number(abs), "min": _number(min), "max": _number(max), "count": _endless, "cycle": _endless, "next": _next,
    **dict.fromkeys(("print", "str", "repr", "format"), _shown), **dict.fromkeys(FILTERS, _filter), "getattr": _getattr,
    "partial": _partial,
    **dict.fromkeys(("dict", "SimpleNamespace", "Namespace", "EasyDict", "AttrDict"), _record),
}  # fmt: skip
