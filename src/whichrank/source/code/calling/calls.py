"""What a call does: an operation of the table, a source of difference, a function of the project, or nothing known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts.collectives import Argument
from whichrank.source.code import libraries
from whichrank.source.code.calling import entering, operations, targets
from whichrank.source.code.calling.answers import READS, differing
from whichrank.source.code.calling.builtin_calls import BUILTINS, FILTERS
from whichrank.source.code.calling.handed_over import noted_put
from whichrank.source.code.calling.past_wrapper import passed_by
from whichrank.source.code.calling.silencing import switched
from whichrank.source.code.evaluating.choices import CARRIED, PRESENT
from whichrank.source.code.evaluating.containers import groups_of, looked_up, put_there
from whichrank.source.code.evaluating.equal_sizes import rows_of
from whichrank.source.code.evaluating.expressions import AMOUNT, evaluate, mixed
from whichrank.source.code.evaluating.names import ALIAS, WRAPPERS
from whichrank.source.code.evaluating.tensors import numpy_type
from whichrank.source.code.evaluating.types import FRACTION, RAGGED, is_fraction, of_types
from whichrank.source.code.events import Enter, Event, Fork, Risk
from whichrank.source.code.index import Class, Function, resolve
from whichrank.source.code.values import (
    NO_TAGS,
    UNKNOWN,
    WORLD,
    Callee,
    Origin,
    Value,
    functions_of,
    join,
    objects_of,
    union,
    world_size,
)
from whichrank.source.nodes import dotted, last_name

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

# Python and torch say the same of any input: kinds and shapes of objects, not what this rank holds.
SAME_EVERYWHERE = frozenset({
    "isinstance", "hasattr", "callable", "type", "issubclass", "id", "device", "is_available", "is_initialized",
    "get_world_size", "device_count", "is_floating_point", "is_tensor", "dim", "ndimension", "getLogger", "get_logger",
    "get_backend", "is_nccl_available", "is_complex", "print", "super",
})  # fmt: skip
FILLS = frozenset({"append", "extend", "add", "insert", "update", "appendleft"})
RISKY = frozenset({
    "open", "load", "read", "loads", "next", "fetch", "download", "decode", "float", "int", "urlopen", "unlink",
    "remove", "rename", "makedirs", "mkdir", "read_text", "write_text", "save", "parse", "backward",
})  # fmt: skip

MODEL_NAMES = frozenset(
    {"model", "net", "network", "policy", "ddp_model", "fsdp_model", "actor", "critic", "criterion"}
)
CALLERS = {"map": (0,), "filter": (0,), "starmap": (0,), "tree_map": (0,), "imap": (0,), "run_until_complete": (0,)}
"""Functions of libraries that call what they are given, and the place where they are given it."""
QUALIFIED = frozenset({
    "functools.partial", "types.SimpleNamespace", "argparse.Namespace",
    *(f"itertools.{name}" for name in FILTERS),
})  # fmt: skip
_LISTS = frozenset({"listdir", "glob", "iglob", "readlines", "read_parquet", "read_json", "fromfile", "load_from_disk"})
_MOST_KINDS = 3
_LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_MARKS = {"bool": "mask", **dict.fromkeys(("item", "max", "amax", "sum", "count_nonzero"), AMOUNT)}
"""What methods of tensors make of what this rank has: masks, and numbers."""
_SAME_TYPE = frozenset({"pad", "view", "reshape", "flatten", "unsqueeze", "squeeze", "repeat", "expand", "ravel"})
"""Calls that give a tensor of the type of the one they are given."""
LOOKUPS = frozenset({"get", "pop", "setdefault"})


class Call(NamedTuple):
    """A call with what is known of its parts."""

    node: ast.Call
    name: str
    full: str
    """Dotted, imports resolved; empty where it is a method of some value."""
    receiver: Value
    receiver_text: str
    args: list[Value]
    keywords: dict[str, Value]

    def argument(self, wanted: Argument | None) -> tuple[Value, ast.expr | None]:
        """One argument: its value and how it is written."""
        if wanted is None:
            return UNKNOWN, None
        for keyword in self.node.keywords:
            if keyword.arg in {wanted.keyword, f"group_{wanted.keyword}"}:
                return self.keywords.get(keyword.arg or "", UNKNOWN), keyword.value
        if wanted.place < len(self.args):
            return self.args[wanted.place], self.node.args[wanted.place]
        return UNKNOWN, None


def call(frame: Frame, node: ast.Call) -> Value:
    """Evaluate a call: its parts first, then what it does."""
    made = _parts(frame, node)
    return passed_by(frame, made, numpy_type(made, _done(frame, made)))


def _done(frame: Frame, made: Call) -> Value:
    several = _several(frame, made)
    if several is not None:
        return several
    special = libraries.special(frame, made)
    if special is not None:
        return special
    spec = operations.row_of(frame, made)
    target = targets.target_of(frame, made) if spec is None or spec.on == "*" else None
    if spec is not None and target is None:
        return operations.operation(frame, made, spec)
    if isinstance(target, Function):
        return entering.entered(frame, made, target)
    if isinstance(target, Class):
        return entering.construct(frame, made, target)
    source = differing(frame, made)
    if source is not None:
        return source
    switched(frame, made)
    noted_put(frame, made)
    plain = isinstance(made.node.func, ast.Name) or made.full in QUALIFIED
    builtin = BUILTINS.get(made.name) if plain else None
    if builtin is not None:
        return builtin(frame, made)
    return _unknown(frame, made)


def _parts(frame: Frame, node: ast.Call) -> Call:
    func = node.func
    text = dotted(func)
    name = last_name(func)
    receiver, receiver_text = UNKNOWN, ""
    if isinstance(func, ast.Attribute):
        receiver_text = text.rpartition(".")[0]
        root = receiver_text.partition(".")[0]
        imported = root in frame.function.module.imports and frame.lookup(root) is None
        receiver = UNKNOWN if imported else evaluate(frame, func.value)
        full = resolve(frame.function.module, text) if text and root != "self" else ""
    else:
        full = resolve(frame.function.module, text) if text else ""
        if isinstance(func, ast.Name) and func.id in frame.function.module.imports:
            name = full.rpartition(".")[2]  # imported under another name
        elif not text:
            receiver = evaluate(frame, func)
    args = [evaluate(frame, argument) for argument in node.args]
    keywords = {k.arg or "**": evaluate(frame, k.value) for k in node.keywords}
    if alias := _alias(frame, func):
        full, known = alias
        name, receiver_text = full.rpartition(".")[2], ""
        if "partial" in known.tags:
            args, keywords = [*(known.items or ()), *args], {**(known.fields or {}), **keywords}
            node = _with_given(node, known)
    return Call(node, name, full, receiver, receiver_text, args, keywords)


def _with_given(node: ast.Call, partial: Value) -> ast.Call:
    """A call of a partial, with the arguments that were given before in their places."""
    names = {keyword.arg for keyword in node.keywords}
    given = [ast.keyword(name, ast.Name(name)) for name in (partial.fields or {}) if name not in names]
    first: list[ast.expr] = [ast.Name(f"argument_{number}") for number, _ in enumerate(partial.items or ())]
    return ast.copy_location(ast.Call(node.func, [*first, *node.args], [*given, *node.keywords]), node)


def _alias(frame: Frame, func: ast.expr) -> tuple[str, Value] | None:
    """The function of a library that a variable stands for."""
    if isinstance(func, ast.Name):
        known = frame.lookup(func.id)
    elif frame.owner is not None and isinstance(func, ast.Attribute) and last_name(func.value) == "self":
        known = frame.paths.get(dotted(func)) or frame.analysis.attribute(frame.owner, func.attr)
    else:
        return None
    marks = [tag for tag in known.tags if tag.startswith(ALIAS)] if known is not None and known.tags else []
    return (marks[0][len(ALIAS) :], known) if known is not None and len(marks) == 1 else None


def _several(frame: Frame, made: Call) -> Value | None:
    """A call of something that may be one of several functions, or a partial, or one that was passed in."""
    if called := CALLERS.get(made.name):
        for thing in functions_of(made.args[place] for place in called if place < len(made.args)):
            if isinstance(thing, Function):
                entering.enter(frame, made._replace(args=[], keywords={}), thing)
        return None
    if made.receiver.kinds and (result := _of_each_kind(frame, made)) is not None:
        return result
    callee = targets.callee_of(frame, made)
    if callee is None or not (callee.holds or "itself" in callee.tags):
        return None
    things = functions_of([callee])
    functions = tuple(thing for thing in things if isinstance(thing, Function))
    classes = [thing for thing in things if isinstance(thing, Class)]
    if classes or not things:
        if not callee.holds or not things:
            return None
        built = join([entering.construct(frame, made, thing) for thing in classes])
        places = any(isinstance(origin, Origin) and origin.kind == "part" for origin in callee.taint)
        by_rank = len(classes) > 1 and "dispatched" in callee.tags and not places
        return built._replace(taint=union(built.taint, callee.taint)) if by_rank else built
    if "partial" in callee.tags:
        given = dict(callee.fields or {})
        made = made._replace(args=[*(callee.items or ()), *made.args], keywords={**given, **made.keywords})
    if "dispatched" in callee.tags:
        return _dispatched(frame, made, callee, functions)
    param = _param(frame, made.node.func)
    plain = not param and "partial" not in callee.tags and isinstance(made.node.func, ast.Name)
    if len(functions) == 1 and plain and not callee.holds:
        return None
    return join([_one_of(frame, made, function, param) for function in functions])


def _of_each_kind(frame: Frame, made: Call) -> Value | None:
    """A method of an object that may be of several classes."""
    found = [targets.method_of(frame, kind, made.name) for kind in made.receiver.kinds]
    methods = tuple(dict.fromkeys(method for method in found if method is not None))
    if len(methods) > 1 and made.receiver.taint:  # of one class on some ranks, of another on others
        return _dispatched(frame, made, made.receiver._replace(ranks=_method_by_rank(frame, made)), methods)
    results = [
        _of_kind(frame, made, kind, method)
        for kind, method in zip(made.receiver.kinds, found, strict=True)
        if method is not None
    ]
    if len(results) > _MOST_KINDS:  # one of many back ends: what some of them answer says nothing about the one in use
        return UNKNOWN
    return join(results) if results else None


def _method_by_rank(frame: Frame, made: Call) -> tuple[Function, ...] | None:
    """The method that each rank calls, where it is known of which class its object is."""
    kinds = [kind for kind in made.receiver.ranks or () if isinstance(kind, Class)]
    methods = [targets.method_of(frame, kind, made.name) for kind in kinds]
    known = tuple(method for method in methods if method is not None)
    return known if len(known) == WORLD else None


def _of_kind(frame: Frame, made: Call, kind: Class, method: Function) -> Value:
    """A method of one of the objects in a container: a branch where only some ranks have put it there."""
    return _where_it_is(frame, made, method, kind)


def _one_of(frame: Frame, made: Call, function: Function, param: str) -> Value:
    """One of the functions in a container, or that were passed in."""
    return _where_it_is(frame, made, function, function) if not param else entering.enter(frame, made, function, param)


def _where_it_is(frame: Frame, made: Call, function: Function, kind: Callee) -> Value:
    """A call of something in a container: a branch where only some ranks have put it there."""
    by = frame.analysis.some_have(kind)
    if not by:
        return entering.enter(frame, made, function)
    kept, frame.out = frame.out, []
    result = entering.enter(frame, made, function)
    events, frame.out = frame.out, kept
    frame.emit(Fork(Value(by), f"{kind.name} is registered", made.node.lineno, events, []))
    return result


def _param(frame: Frame, func: ast.expr) -> str:
    """The parameter, of this function or of the one around it, that is called."""
    name = last_name(func) if isinstance(func, ast.Name) else ""
    around: Function | None = frame.function
    while around is not None and name:
        if name in around.params:
            return name
        around = around.parent
    return ""


def _dispatched(frame: Frame, made: Call, callee: Value, functions: tuple[Function, ...]) -> Value:
    """Which function is called differs between ranks: one branch for each."""
    kept, frame.out = frame.out, []
    results, branches = [], []
    for function in functions:
        results.append(entering.enter(frame, made, function))
        truths = tuple(each is function for each in callee.ranks) if callee.ranks is not None else None
        branches.append((Value(callee.taint, ranks=truths), frame.out))
        frame.out = []
    frame.out = kept
    if "or nothing" in callee.tags:
        branches.append((Value(callee.taint), []))
    other: list[Event] = branches[-1][1]
    for test, events in reversed(branches[:-1]):
        other = [Fork(test, ast.unparse(made.node.func)[:120], made.node.lineno, events, other)]
    frame.out += other
    return join(results)


def _unknown(frame: Frame, made: Call) -> Value:
    """A call into a library: what it gets may show in what it returns."""
    if made.name in FILLS and isinstance(made.node.func, ast.Attribute):
        named = {**((made.args[0].fields or {}) if made.args else {}), **made.keywords}
        if made.name == "update" and named:
            for key, value in named.items():
                frame.put_into(made.node.func.value, value, key=key)
        else:
            inside = list(made.args)
            if made.name == "extend":
                inside = [item for value in made.args for item in (value.items or (value,))]
            put = mixed(made.args)._replace(holds=functions_of(inside), kinds=objects_of(inside))
            marks = of_types(inside) | frozenset().union(*(groups_of(value) for value in inside))
            if made.name == "append" and (longer := union(*(value.length for value in made.args))):
                put, marks = put._replace(taint=union(put.taint, longer)), marks | {RAGGED}
            last = made.args[0] if made.name == "append" and len(made.args) == 1 else None
            frame.put_into(made.node.func.value, put.tagged(*marks), grows=True, last=last)
    elif made.name.endswith("_") and made.args and isinstance(made.node.func, ast.Attribute):
        frame.put_into(made.node.func.value, mixed(made.args))  # add_(), copy_() and the like
    _logged(frame, made)
    local = any(isinstance(origin, Origin) and origin.kind == "data" for origin in made.receiver.taint)
    number = made.name in {"int", "float"} and any(value.ranks is not None for value in made.args)
    risky = made.name in RISKY or any(value.taint for value in made.args)
    tried = frame.trying and not number and (risky or local)
    if tried or made.name in READS:  # callers may catch what reading raises
        origin = Origin("exception", f"{made.name}() may fail on one rank alone", *frame.at(made.node))
        frame.emit(Risk(origin, made.node.lineno))
    if made.name in SAME_EVERYWHERE:
        return world_size() if made.name == "get_world_size" and not made.args else UNKNOWN
    if (held := _from_container(frame, made)) is not None:
        return held
    given = [*made.args, *(v for k, v in made.keywords.items() if k not in libraries.PLACEMENT)]
    # An object that some ranks lack, a logger or an average of weights, seldom shows in what a function returns.
    parts = [made.receiver, *(v for v in given if v.ranks is None or not any(each is PRESENT for each in v.ranks))]
    carried = frozenset().union(*(part.tags & CARRIED for part in parts)) if parts else frozenset()
    if made.name[:1].isupper():  # an object made with a rank is not itself one; made with a list, it may be as long
        length = union(*(part.length for part in parts))
        return Value(length=length, tags=carried) if carried or length else UNKNOWN
    if made.name in libraries.KEEPS_RECEIVER and isinstance(made.node.func, ast.Attribute):
        return made.receiver._replace(ranks=None)
    return _computed(frame, made, mixed(parts))


def _logged(frame: Frame, made: Call) -> None:
    """A message that is logged goes through the handlers of the project."""
    if made.name in _LOGS and frame.analysis.traits.log_handlers and "log" in made.receiver_text.lower():
        for handler in frame.analysis.traits.log_handlers:
            frame.emit(Enter(handler, made.node.lineno, frame.function))


def _from_container(frame: Frame, made: Call) -> Value | None:
    """What a dictionary or a registry of functions gives back."""
    if made.name in LOOKUPS:
        key = made.args[0].ranks if made.args else None
        if key and isinstance(made.node.func, ast.Attribute):
            put = put_there(frame, made.node.func.value, key[0])
            if put is not None:
                return put
        return looked_up(made.receiver, *(made.args[:2] or [UNKNOWN]))
    if made.name in {"values", "items", "copy"} and (made.receiver.holds or made.receiver.fields):
        held = made.receiver if made.receiver.holds else join((made.receiver.fields or {}).values())
        taint, length, tags = made.receiver.taint, made.receiver.length, made.receiver.tags & CARRIED
        kept = Value(taint, length, tags, thing=held.thing, holds=held.holds, kinds=held.kinds)
        return kept.tagged("pairs") if made.name == "items" else kept
    return None


def _marks(made: Call) -> list[str]:
    """What kind of number or mask a call makes of a tensor."""
    if isinstance(made.node.func, ast.Attribute):
        marks = [_MARKS[made.name]] if made.name in _MARKS else []
        return [*marks, FRACTION] if made.name == "item" and is_fraction(made.node.func.value) else marks
    return [FRACTION] if made.name == "float" else []


def _computed(frame: Frame, made: Call, value: Value) -> Value:
    """What a call of a library makes of its arguments: whether it differs, and in what."""
    unwrapped = made.name == "module" and bool(made.receiver.tags & WRAPPERS)
    if (
        (made.name in MODEL_NAMES or unwrapped)
        and (made.args or made.keywords)
        and not any(isinstance(origin, Origin) for origin in value.taint)
    ):
        origin = Origin("data", "the model's output on this rank's data", *frame.at(made.node))
        value = value._replace(taint=value.taint | {origin})
    if made.name in _SAME_TYPE and (cast := union(made.receiver.cast, *(given.cast for given in made.args[:1]))):
        value = value._replace(cast=cast)
    if made.receiver.length and made.name not in libraries.REDUCES:
        value = value._replace(length=made.receiver.length)
    if made.name.endswith("_like") and made.args:
        value = value._replace(length=made.args[0].length)
    if made.name == "size" and made.receiver.length and made.args and made.args[0].ranks not in (None, (0,) * WORLD):
        return UNKNOWN  # a filter keeps fewer rows, not fewer columns
    if made.name in libraries.COUNTS:
        rows = rows_of(made.node.func.value) if isinstance(made.node.func, ast.Attribute) else NO_TAGS
        return Value(union(value.taint, made.receiver.length), tags=rows)
    if value.taint and (numbers := _marks(made)):
        return value.tagged(*numbers)
    if made.name in READS or made.name in _LISTS:  # what lies under a name of this rank's own
        own = union(*(value.taint for value in made.args))
        return value._replace(length=union(value.length, own)) if own else value
    padding = made.keywords.get("padding", UNKNOWN)
    if padding.ranks is not None and padding.ranks[0] in (True, "longest") and value.taint:
        return value._replace(length=value.taint).tagged("padded")
    places = made.full == "torch.where" and len(made.args) == 1
    if (places or made.name in libraries.SHAPED_BY_CONTENT) and value.taint:
        shaped = value._replace(length=value.taint)
        return shaped.tagged("padded") if places or "as_tuple" in made.keywords else shaped
    if made.name in libraries.SHARDS and (marks := union(*(v.taint for v in [*made.args, *made.keywords.values()]))):
        return value._replace(length=marks)
    return value
