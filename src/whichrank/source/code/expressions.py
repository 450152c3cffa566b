"""The value of an expression: what is known of it on each rank, and why it may differ."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.facts.collectives import collectives, rank_sources
from whichrank.source.code import implicit
from whichrank.source.code.events import Fork
from whichrank.source.code.groups import WORLD_GROUP, is_world
from whichrank.source.code.index import Class, Function, Module, dotted, from_lambda, last_name, resolve
from whichrank.source.code.values import (
    CLEAN,
    NO_TAGS,
    UNKNOWN,
    WORLD,
    Origin,
    Taint,
    Value,
    constant,
    differs,
    functions_of,
    join,
    per_rank,
    union,
)

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

# What every rank agrees on although the object itself differs.
AGREED = frozenset({
    "dtype", "device", "is_cuda", "requires_grad", "ndim", "layout", "is_sparse", "type", "training", "__class__",
    "placements", "device_mesh", "is_nested", "is_quantized", "is_leaf", "is_meta", "keys", "columns", "names", "format", "mode", "backend",
})  # fmt: skip
WORLD_NAMES = frozenset(
    {"world_size", "world", "num_processes", "nprocs", "n_ranks", "num_ranks", "ngpus", "WORLD_SIZE"}
)
WRAPPERS = frozenset({"ddp", "fsdp", "deepspeed"})
ALIAS = "alias:"
"""Marks a variable that stands for a function of a library: `reduce = dist.all_reduce`."""
AGREED_TAG = "agreed"
"""Marks what came out of a collective and is the same on all ranks."""
CARRIED = frozenset({"wrapped_output", AGREED_TAG})
"""Tags that what is computed from a value keeps."""
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.BitOr: operator.or_,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_MASK = frozenset({"mask"})
DEVICE_NUMBER = "device number"
KEYS = frozenset({"rank", "local_rank", "global_rank", "world_rank", "is_main", "is_main_process", "process_index"})
"""What says under which rank a process runs, as the key of a dictionary."""
PRESENT = object()
"""Something of which only that it is there is known."""
_SMALL = 1 << 20
_MOST_FIELDS = 40
_PADDED = re.compile(r"pad|extend\(|\+=? *\w+\[:|cycle|repeat|% *len")


_SETTINGS = re.compile(r"(?:^|\.)(?:args|opts?|cfg|config|conf|hparams|options|flags|FLAGS|run_opts)\.\w+$")


def is_setting(text: str) -> bool:
    """`args.x`, `self.cfg.x`: configuration that is handed through a program."""
    return _SETTINGS.search(text) is not None


def setting_name(text: str) -> str:
    return ".".join(text.rsplit(".", 2)[-2:])


def rank_value(frame: Frame, node: ast.AST, what: str, kind: str, axis: str) -> Value:
    """What a name of the table of sources stands for."""
    origin = Origin("part" if kind == "part" else "rank" if kind in {"first", "last"} else kind, what, *frame.at(node))
    ranks: tuple[Any, ...] | None = None
    if kind == "rank" and axis == "world":
        ranks = tuple(range(WORLD))
    elif kind in {"first", "last"}:
        ranks = tuple(rank == (0 if kind == "first" else WORLD - 1) for rank in range(WORLD))
    return Value(frozenset({origin}), ranks=ranks)


def evaluate(frame: Frame, node: ast.expr) -> Value:
    """The value of any expression; calls inside are noted as events on the way."""
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(frame, node)
    return _combined(frame, node)


def _combined(frame: Frame, node: ast.AST) -> Value:
    parts = [evaluate(frame, child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return mixed(parts)


def mixed(parts: list[Value]) -> Value:
    """What is computed from several values."""
    taint = union(*(part.taint for part in parts))
    tags = frozenset().union(*(part.tags & CARRIED for part in parts if part.tags)) if parts else NO_TAGS
    return Value(taint, tags=tags) if taint or tags else UNKNOWN


def _constant(_frame: Frame, node: ast.Constant) -> Value:
    return constant(node.value)


def _name(frame: Frame, node: ast.Name) -> Value:
    known = frame.lookup(node.id)
    if known is not None:
        return known
    source = rank_sources("attribute").get(node.id)
    if source is not None and node.id not in frame.function.module.imports:
        return rank_value(frame, node, node.id, source.kind, source.axis)
    return constant(WORLD) if node.id in WORLD_NAMES else reference(frame, node.id)


def reference(frame: Frame, text: str) -> Value:
    """A name that stands for something of the project: a function, a class, a constant of a module."""
    full = resolve(frame.function.module, text)
    found = frame.analysis.project.find(full)
    if isinstance(found, Function | Class):
        return Value(thing=found, tags=frozenset({"itself"}))
    head, _, last = full.rpartition(".")
    if last in collectives() and head.startswith("torch.distributed"):
        return Value(tags=frozenset({f"{ALIAS}{full}"}))
    module = frame.analysis.project.modules.get(head)
    if isinstance(module, Module) and module is not frame.function.module:
        return frame.analysis.global_value(module, last) or UNKNOWN
    return UNKNOWN


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    text = dotted(node)
    if text and text in frame.paths:
        return frame.paths[text]
    own = isinstance(node.value, ast.Name) and node.value.id == "self" and frame.owner is not None
    base = Value(thing=frame.owner) if own else evaluate(frame, node.value)
    source = rank_sources("attribute").get(node.attr)
    held = _member(frame, base, node)
    if held is not None and (held.taint or source is None):
        return held
    if source is not None:
        return rank_value(frame, node, text or node.attr, source.kind, source.axis)
    if base.fields is not None and node.attr in base.fields:
        return base.fields[node.attr]
    if node.attr in WORLD_NAMES:
        return constant(WORLD)
    if "ReduceOp." in text:
        return constant(text.rpartition(".")[2])
    if is_world(text):
        return Value(tags=frozenset({"group", WORLD_GROUP}), ranks=(list(range(WORLD)),) * WORLD)
    if text and is_setting(text) and node.attr not in AGREED:
        set_by = frame.analysis.settings.get(setting_name(text))
        if set_by:
            return Value(union(base.taint, set_by))
    known = not own and not base.taint and text and node.attr != "grad"
    return reference(frame, text) if known else _part(frame, node, base)


def _member(frame: Frame, base: Value, node: ast.Attribute) -> Value | None:
    """An attribute or a bound method of an object of the project."""
    name = node.attr
    if not isinstance(base.thing, Class):
        return None
    if "itself" in base.tags:
        return frame.analysis.attribute(base.thing, name)
    written = frame.analysis.attribute(base.thing, name)
    if written is not None:
        return written
    method = frame.analysis.project.method(base.thing, name)
    if method is None:
        return None
    if implicit.is_property(method):
        return implicit.entered(frame, method, node.lineno)
    return Value(thing=method, tags=frozenset({"itself"}))


def _part(frame: Frame, node: ast.Attribute, base: Value) -> Value:
    """An attribute of something of which little is known."""
    name = node.attr
    if name in AGREED:
        return UNKNOWN
    if name == "module" and base.tags & WRAPPERS:
        return base._replace(tags=(base.tags - WRAPPERS) | {"unwrapped"})
    if name == "grad" and frame.analysis.local_gradients:
        return Value(frozenset({Origin("data", "this rank's part of the gradients", *frame.at(node))}))
    if base.taint or base.tags & CARRIED:
        kept = name in {"data", "T", "grad"} or "padded" in base.tags
        return Value(base.taint, base.length if kept else CLEAN, base.tags & CARRIED)
    return UNKNOWN


def _binary(frame: Frame, node: ast.BinOp) -> Value:
    left, right = evaluate(frame, node.left), evaluate(frame, node.right)
    result = mixed([left, right])
    if isinstance(node.op, ast.Mult):
        ranks = per_rank(_times, left, right)
        length = union(left.length, right.length, right.taint if left.items is not None else CLEAN)
    else:
        function = _BINARY.get(type(node.op))
        ranks = per_rank(function, left, right) if function is not None and _plain(left, right) else None
        if isinstance(node.op, ast.FloorDiv):
            ranks = _within_world(ranks, left, right)
        length = union(left.length, right.length)
    if isinstance(node.op, ast.Div) and "path" in left.tags:
        return result.tagged("path")
    if isinstance(node.op, _SET_OPERATORS):
        result = result.tagged(*((left.tags | right.tags) & {"set", "mask"}))
    return result._replace(ranks=ranks, length=length) if ranks is not None or length else result


def _plain(*values: Value) -> bool:
    """Formatting with % can make any text; only numbers and short lists are computed."""
    return all(v.ranks is None or not isinstance(v.ranks[0], str | bytes) for v in values)


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, list | str | tuple) or isinstance(right, list | str | tuple):
        raise TypeError
    if abs(left) > _SMALL or abs(right) > _SMALL:
        raise OverflowError
    return left * right


def _unary(frame: Frame, node: ast.UnaryOp) -> Value:
    value = evaluate(frame, node.operand)
    if isinstance(node.op, ast.Not):
        return Value(_in_doubt(value), ranks=per_rank(operator.not_, value))
    if isinstance(node.op, ast.USub):
        return value._replace(ranks=per_rank(operator.neg, value))
    return value._replace(ranks=None)


def _compare(frame: Frame, node: ast.Compare) -> Value:
    left = _device_number(frame, evaluate(frame, node.left), node)
    rights = [evaluate(frame, item) for item in node.comparators]
    if len(rights) > 1:
        return _chain(node, left, rights)
    right, kind = rights[0], type(node.ops[0])
    none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    if none and kind in {ast.Is, ast.IsNot} and not left.tags & {"element", "optional"}:
        return UNKNOWN  # whether something was given at all is the program's shape, the same everywhere
    if kind in {ast.In, ast.NotIn} and isinstance(node.left, ast.Constant) and not _ranks_only(right):
        return UNKNOWN  # which keys a batch or a configuration has
    ranks = _within_world(per_rank(_COMPARE[kind], left, right), left, right)
    taint = union(left.taint, right.taint, right.length if kind in {ast.In, ast.NotIn} else CLEAN)
    return Value(taint, tags=_MASK if taint and ranks is None else NO_TAGS, ranks=ranks)


def _device_number(frame: Frame, value: Value, node: ast.AST) -> Value:
    """The number of this process's GPU, where it is compared: `torch.cuda.current_device() == 0`."""
    if DEVICE_NUMBER not in value.tags or value.taint:
        return value
    return rank_value(frame, node, "torch.cuda.current_device()", "rank", "world")


def _within_world(ranks: tuple[Any, ...] | None, *operands: Value) -> tuple[Any, ...] | None:
    """Nothing where a number beyond the ranks played through decides: `rank < 8`, `rank // 8`."""
    if ranks is None or len(set(map(str, ranks))) > 1 or not any(operand.taint for operand in operands):
        return ranks
    for operand in operands:
        if operand.ranks is not None and any(_beyond(value) for value in operand.ranks):
            return None
    return ranks


def _beyond(value: Any) -> bool:
    if isinstance(value, list | tuple | range | set):
        return any(map(_beyond, value))
    return isinstance(value, int) and not isinstance(value, bool) and value >= WORLD


def _ranks_only(value: Value) -> bool:
    return value.ranks is not None


def _chain(node: ast.Compare, left: Value, rights: list[Value]) -> Value:
    """`0 < rank < 3`."""
    taint = union(left.taint, *(right.taint for right in rights))
    ranks: tuple[Any, ...] | None = (True,) * WORLD
    for one, kind, other in zip([left, *rights], node.ops, rights, strict=False):
        step = per_rank(_COMPARE[type(kind)], one, other)
        ranks = None if step is None or ranks is None else tuple(a and b for a, b in zip(ranks, step, strict=True))
    return Value(taint, ranks=ranks)


def _boolean(frame: Frame, node: ast.BoolOp) -> Value:
    value = evaluate(frame, node.values[0])
    for item in node.values[1:]:
        inside, other = frame.aside(item)
        if inside:
            arms = (inside, []) if isinstance(node.op, ast.And) else ([], inside)
            frame.emit(Fork(value, ast.unparse(node.values[0])[:120], node.lineno, *arms))
        value = _logic(isinstance(node.op, ast.And), value, other)
    return value


def _logic(both: bool, one: Value, other: Value) -> Value:
    if both:
        ranks = per_rank(lambda a, b: a and b, one, other)
        if ranks is None:
            ranks = _decided(one, other, False)
    else:
        ranks = per_rank(lambda a, b: a or b, one, other)
        if ranks is None:
            ranks = _decided(one, other, True)
    tags = (one.tags | other.tags) & CARRIED
    result = Value(union(_in_doubt(one), _in_doubt(other)), tags=tags, ranks=ranks)
    return result._replace(thing=one.thing or other.thing, tags=one.tags | other.tags) if not both else result


def _in_doubt(value: Value) -> Taint:
    """Why the truth of a value may differ; `local_rank != -1` is the same everywhere."""
    return value.taint if differs(value) else CLEAN


def _decided(one: Value, other: Value, by: bool) -> tuple[Any, ...] | None:
    """`known and unknown` is known where the known side decides on all ranks: the unknown is the same everywhere."""
    for side, unknown in ((one, other), (other, one)):
        if side.ranks is not None and not differs(unknown):
            truths = tuple(bool(v) for v in side.ranks)
            # Where the unknown, uniform side does not decide, the ranks differ as the known side says.
            return truths if len(set(truths)) > 1 else ((by,) * WORLD if truths[0] is by else None)
    return None


def _conditional(frame: Frame, node: ast.IfExp) -> Value:
    test = evaluate(frame, node.test)
    then, one = frame.aside(node.body)
    other, two = frame.aside(node.orelse)
    if then or other:
        frame.emit(Fork(test, ast.unparse(node.test)[:120], node.lineno, then, other))
    return chosen(test, one, two)


def chosen(test: Value, one: Value, two: Value) -> Value:
    """One value or the other, by a condition."""
    merged = join([one, two])
    if test.ranks is not None and one.ranks is not None and two.ranks is not None:
        picked = tuple(a if t else b for t, a, b in zip(test.ranks, one.ranks, two.ranks, strict=True))
        merged = merged._replace(ranks=picked)
    elif merged.ranks is not None and one.ranks != two.ranks:
        merged = merged._replace(ranks=None)
    if differs(test) and not ("shared" in one.tags and "shared" in two.tags):
        shape = union(merged.length, test.taint) if _other_length(one, two) else merged.length
        tags = merged.tags
        if _is_none(one) or _is_none(two):
            tags |= {"optional"}
        if _other_type(one, two):
            tags = frozenset(tag for tag in tags if not tag.startswith(("dtype:", "cast:"))) | {"dtype differs"}
        merged = merged._replace(taint=union(merged.taint, test.taint), length=shape, tags=tags)
        if test.ranks is not None and _is_none(one) != _is_none(two) and merged.ranks is None:
            there = not _is_none(one)
            merged = merged._replace(ranks=tuple(PRESENT if bool(t) is there else None for t in test.ranks))
        if len(merged.holds) > 1:
            merged = _either_function(test, one, two, merged)
    return merged


def _either_function(test: Value, one: Value, two: Value, merged: Value) -> Value:
    """`f = save if rank == 0 else skip`: which function it is, rank by rank where that is known."""
    picks = None
    if test.ranks is not None and isinstance(one.thing, Function) and isinstance(two.thing, Function):
        picks = tuple(one.thing if truth else two.thing for truth in test.ranks)
    return merged._replace(ranks=picks).tagged("dispatched")


def _other_type(one: Value, two: Value) -> bool:
    """Whether the two are tensors of different types: one was cast and the other was not, or both are known."""
    for prefix in ("cast:", "dtype:"):
        kinds = [{tag for tag in value.tags if tag.startswith(prefix)} for value in (one, two)]
        if kinds[0] != kinds[1] and (prefix == "cast:" or (kinds[0] and kinds[1])):
            return True
    return False


def _is_none(value: Value) -> bool:
    return value.ranks is not None and value.ranks[0] is None


def _other_length(one: Value, two: Value) -> bool:
    shapes = [{tag for tag in value.tags if tag.startswith("shape:")} for value in (one, two)]
    if shapes[0] and shapes[1]:
        return shapes[0] != shapes[1]
    if one.items is not None and two.items is not None:
        return len(one.items) != len(two.items)
    known = one.ranks is not None and two.ranks is not None and isinstance(one.ranks[0], list | tuple | range)
    return known and per_rank(len, one) != per_rank(len, two)


def _sequence(frame: Frame, node: ast.List | ast.Tuple) -> Value:
    items = tuple(evaluate(frame, item) for item in node.elts)
    if any(isinstance(item, ast.Starred) for item in node.elts):
        return mixed(list(items))._replace(length=union(*(item.length for item in items)))
    kind: Callable[..., Any] = list if isinstance(node, ast.List) else tuple
    ranks = per_rank(lambda *each: kind(each), *items) if len(items) <= 64 else None
    known = mixed(list(items))._replace(items=items, ranks=ranks if items else (kind(()),) * WORLD)
    return known._replace(holds=functions_of(items))


def _set(frame: Frame, node: ast.Set) -> Value:
    items = [evaluate(frame, item) for item in node.elts]
    return mixed(items)._replace(tags=frozenset({"set"}), ranks=per_rank(lambda *each: set(each), *items))


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    base = evaluate(frame, node.value)
    if last_name(node.value) == "environ":
        return asked_environment(frame, node, node.slice)
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if key in KEYS and base.fields is None and not any(isinstance(origin, Origin) for origin in base.taint):
        source = rank_sources("attribute")[key]
        return rank_value(frame, node, ast.unparse(node), source.kind, source.axis)
    if isinstance(node.slice, ast.Slice):
        ends = [evaluate(frame, e) for e in (node.slice.lower, node.slice.upper, node.slice.step) if e is not None]
        marks = union(*(end.taint for end in ends))
        length = CLEAN if _equal_chunk(frame, node.slice) else marks
        taint = union(base.taint, marks)
        return Value(taint, union(base.length, length), base.tags & (CARRIED | {"loader", "set"}))
    index = evaluate(frame, node.slice)
    if (drawn := implicit.operator_method(frame, base, node, "__getitem__")) is not None and drawn.thing is not None:
        return drawn
    if "mesh" in base.tags:
        return Value(tags=frozenset({"mesh"}))
    if "padded" in base.tags and key is not None:
        return base
    if "uneven parts" in base.tags and index.taint:
        return Value(union(base.taint, index.taint), index.taint)
    if (held := looked_up(base, index)) is not None:
        return held
    if base.items is not None and index.ranks is not None and isinstance(index.ranks[0], int):
        picked = index.ranks[0]
        if len(set(index.ranks)) == 1 and -len(base.items) <= picked < len(base.items):
            return base.items[picked]
    ranks = per_rank(lambda a, b: a[b], base, index)
    masked = bool(isinstance(node.slice, ast.Compare) or "mask" in index.tags) and bool(base.taint or index.taint)
    length = union(base.taint, index.taint) if masked else CLEAN
    if masked and not any(isinstance(origin, Origin) for origin in length):
        length |= {Origin("data", "a mask keeps another number of elements on every rank", *frame.at(node))}
    taint = union(base.taint, index.taint)
    return Value(taint, length, base.tags & CARRIED, ranks) if taint or ranks is not None or length else UNKNOWN


def _equal_chunk(frame: Frame, node: ast.Slice) -> bool:
    """`x[rank * n : (rank + 1) * n]`: as long on every rank, unless n was rounded up and nothing is padded."""
    if node.lower is None or node.upper is None or node.step is not None:
        return False
    lower, upper = ast.unparse(node.lower), ast.unparse(node.upper)
    one, times, two = lower.partition(" * ")
    shapes = {f"({a} + 1) * {b}" for a, b in ((one, two), (two, one))} | {
        f"{b} * ({a} + 1)" for a, b in ((one, two), (two, one))
    }
    if not (upper.startswith(f"{lower} + ") or (times and upper in shapes)):
        return False
    body = frame.function.node
    lines = frame.function.module.lines[body.lineno - 1 : body.end_lineno] if body is not None else []
    text = "\n".join(lines)
    return "ceil" not in text or _PADDED.search(text) is not None


def looked_up(base: Value, index: Value, default: Value | None = None) -> Value | None:
    """What a dictionary or a container of functions gives for a key."""
    if base.fields is not None:
        keys = index.ranks if index.ranks is not None else ()
        try:
            held = [base.fields.get(key, default) for key in keys]
        except TypeError:
            held = []
        found = [value for value in held if value is not None]
        if found and len(found) == WORLD:
            return _for_each(found, index)
        value = join(base.fields.values())
    elif base.kinds and base.thing is None:
        value = Value(base.taint, thing=base.kinds[0], kinds=base.kinds if len(base.kinds) > 1 else ())
    elif base.holds and "itself" not in base.tags:
        value = Value(base.taint, thing=base.holds[0], holds=base.holds, tags=frozenset({"itself"}))
    else:
        return None
    value = value._replace(taint=union(value.taint, index.taint), ranks=None)
    functions = functions_of([value])
    if not index.taint or not functions:
        return value
    if base.fields is not None and len(base.fields) > len(functions):
        return value._replace(holds=functions).tagged("dispatched", "or nothing")
    return value.tagged("dispatched") if len(functions) > 1 else value


def _for_each(found: list[Value], index: Value) -> Value:
    """One value for each rank."""
    if all(value is found[0] for value in found):
        return found[0]
    value = join(found)
    taint = union(value.taint, index.taint)
    if len(value.holds) > 1:
        return value._replace(taint=taint, ranks=tuple(each.thing for each in found)).tagged("dispatched")
    alike = all(each.ranks is not None for each in found)
    ranks = tuple(each.ranks[rank] for rank, each in enumerate(found) if each.ranks) if alike else None
    return value._replace(taint=taint, ranks=ranks)


def asked_environment(frame: Frame, node: ast.AST, name: ast.expr | None) -> Value:
    """A variable of the environment by its name, or by a parameter that brings the name."""
    if isinstance(name, ast.Name) and name.id in frame.function.params:
        frame.asks_for = name.id
    return environment(frame, node, name.value if isinstance(name, ast.Constant) else "")


def environment(frame: Frame, node: ast.AST, name: object) -> Value:
    """One variable of the environment."""
    source = rank_sources("environment").get(str(name))
    if source is None:
        return constant(WORLD) if name == "WORLD_SIZE" else UNKNOWN
    value = rank_value(frame, node, f"the environment variable {name}", source.kind, source.axis)
    return value._replace(ranks=per_rank(str, value))


def _comprehension(frame: Frame, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    from whichrank.source.code.loops import elements, turns

    saved = dict(frame.env)
    length, taint = CLEAN, CLEAN
    for generator in node.generators:
        source = evaluate(frame, generator.iter)
        frame.bind(generator.target, elements(frame, source, generator.iter))
        length = union(length, turns(frame, source).length)
        taint = union(taint, source.taint)
        for condition in generator.ifs:
            length = union(length, evaluate(frame, condition).taint)
    parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inside, value = frame.aside(*parts)
    if inside:
        from whichrank.source.code.events import Loop

        frame.emit(Loop("for", ast.unparse(node.generators[0].iter)[:120], node.lineno, inside, length))
    frame.env = saved
    functions = functions_of([value])
    tags = (value.tags & CARRIED) | ({"set"} if isinstance(node, ast.SetComp) else set())
    return Value(union(value.taint, length, taint), length, frozenset(tags), holds=functions)


def _formatted(frame: Frame, node: ast.JoinedStr) -> Value:
    parts = [evaluate(frame, part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
    for part in parts:
        implicit.operator_method(frame, part, node, "__format__", "__str__", "__repr__")
    return mixed(parts)._replace(tags=NO_TAGS)


def _lambda(frame: Frame, node: ast.Lambda) -> Value:
    """A function without a name: read when it is called."""
    if not any(isinstance(part, ast.Call) for part in ast.walk(node.body)):
        return UNKNOWN
    function = frame.function.module.defs.get(node)
    if function is None:
        function = from_lambda(frame.function, node)
    if frame.function.node is not None:
        frame.analysis.closures[function] = frame.env
    return Value(thing=function, tags=frozenset({"itself"}))


def _dictionary(frame: Frame, node: ast.Dict) -> Value:
    values = [evaluate(frame, value) for value in node.values]
    for key in node.keys:
        if key is not None:
            evaluate(frame, key)
    plain = all(isinstance(key, ast.Constant) for key in node.keys) and len(values) <= _MOST_FIELDS
    fields = {key.value: value for key, value in zip(node.keys, values, strict=True) if isinstance(key, ast.Constant)}
    return mixed(values)._replace(holds=functions_of(values), fields=fields if plain else None)


def _named(frame: Frame, node: ast.NamedExpr) -> Value:
    value = evaluate(frame, node.value)
    frame.bind(node.target, value)
    return value


def _yielded(frame: Frame, node: ast.Yield | ast.YieldFrom) -> Value:
    if node.value is None:
        frame.yielded(UNKNOWN)
        return UNKNOWN
    value = evaluate(frame, node.value)
    frame.yielded(value, whole=isinstance(node, ast.YieldFrom))
    return UNKNOWN


def _call(frame: Frame, node: ast.Call) -> Value:
    from whichrank.source.code.calls import call

    return call(frame, node)


def _starred(frame: Frame, node: ast.Starred) -> Value:
    return evaluate(frame, node.value)


_HANDLERS: dict[type[ast.expr], Callable[[Frame, Any], Value]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.Compare: _compare, ast.BoolOp: _boolean, ast.IfExp: _conditional, ast.List: _sequence, ast.Tuple: _sequence,
    ast.Set: _set,
    ast.Dict: _dictionary, ast.Subscript: _subscript, ast.ListComp: _comprehension, ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension, ast.DictComp: _comprehension, ast.JoinedStr: _formatted, ast.Lambda: _lambda,
    ast.NamedExpr: _named, ast.Yield: _yielded, ast.YieldFrom: _yielded, ast.Call: _call, ast.Starred: _starred,
}  # fmt: skip
