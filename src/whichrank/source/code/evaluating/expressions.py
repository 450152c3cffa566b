"""The value of an expression: what is known of it on each rank, and why it may differ."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.calling import implicit
from whichrank.source.code.calling.handed_over import HANDED_OVER
from whichrank.source.code.calling.sources import KEYS, asked_environment, rank_value
from whichrank.source.code.evaluating import equal_sizes, neighbours
from whichrank.source.code.evaluating.choices import AGREED_TAG, CARRIED, chosen, in_doubt, logic, present
from whichrank.source.code.evaluating.comparing import COMPARE, chain, not_by_chance, within_world
from whichrank.source.code.evaluating.containers import (
    each_of,
    equal_chunk,
    item_at,
    looked_up,
    part_of,
    put_there,
)
from whichrank.source.code.evaluating.disks import NODE_LOCAL, is_local_path
from whichrank.source.code.evaluating.names import attribute, name
from whichrank.source.code.evaluating.ordering import REVERSED
from whichrank.source.code.evaluating.types import FRACTION, of_types, wide
from whichrank.source.code.events import Fork
from whichrank.source.code.index import from_lambda
from whichrank.source.code.values import (
    CLEAN,
    NO_TAGS,
    UNKNOWN,
    WORLD,
    Origin,
    Taint,
    Value,
    constant,
    functions_of,
    join,
    per_rank,
    union,
)
from whichrank.source.nodes import last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.evaluating.comprehensions import Comprehension
    from whichrank.source.code.frame import Frame

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.BitOr: operator.or_,
}  # fmt: skip
_SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_MASK = frozenset({"mask"})
DEVICE_NUMBER = "device number"
AMOUNT = "amount"
"""Marks a number that was taken from data: `lengths.max().item()`."""
OWN_WIDTH = "own width"
"""Marks a tensor that is as wide as the longest sequence of this rank's batch."""
_PADDED_FIELDS = frozenset({"input_ids", "attention_mask"})
"""What tokenizers pad to the longest sequence of a batch."""
_SMALL = 1 << 20
_MOST_FIELDS = 40


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
    if is_local_path(node.value):
        return constant(node.value).tagged(NODE_LOCAL)
    return constant(node.value)


def _binary(frame: Frame, node: ast.BinOp) -> Value:
    left, right = evaluate(frame, node.left), evaluate(frame, node.right)
    result = mixed([left, right])
    if marks := {*equal_sizes.marks(node.op, left, right), *wide(left, right)}:
        result = result.tagged(*marks)
    if isinstance(node.op, ast.Mult):
        ranks = per_rank(_times, left, right)
        length = union(left.length, right.length, right.taint if left.items is not None else CLEAN)
        if types := of_types(left.items or ()):
            result = result.tagged(*types)
    else:
        function = _BINARY.get(type(node.op))
        ranks = per_rank(function, left, right) if function is not None and _plain(left, right) else None
        if isinstance(node.op, ast.FloorDiv):
            ranks = within_world(ranks, left, right)
        elif isinstance(node.op, ast.Sub):
            ranks = not_by_chance(ranks, left, right)
        length = union(left.length, right.length)
    if isinstance(node.op, ast.Div) and "path" in left.tags:
        return result.tagged("path")
    if isinstance(node.op, ast.Div) or FRACTION in left.tags | right.tags:
        result = result.tagged(FRACTION)
    if ranks is None and (way := neighbours.shift(node.op, left, right)):
        return result.tagged(way)._replace(length=length)
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
        return Value(in_doubt(value), ranks=per_rank(operator.not_, value))
    if isinstance(node.op, ast.USub):
        return value._replace(ranks=per_rank(operator.neg, value))
    return value._replace(ranks=None)


def _compare(frame: Frame, node: ast.Compare) -> Value:
    left = _device_number(frame, evaluate(frame, node.left), node)
    rights = [evaluate(frame, item) for item in node.comparators]
    if len(rights) > 1:
        return chain(node, left, rights)
    right, kind = rights[0], type(node.ops[0])
    none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    if none and kind in {ast.Is, ast.IsNot} and not left.tags & {"element", "optional"}:
        return UNKNOWN  # whether something was given at all is the program's shape, the same everywhere
    if none and HANDED_OVER in left.tags:
        return Value(left.length)  # how many there are, not what they are
    if kind in {ast.In, ast.NotIn} and isinstance(node.left, ast.Constant) and right.ranks is None:
        return UNKNOWN  # which keys a batch or a configuration has
    ranks = within_world(per_rank(COMPARE[kind], left, right), left, right)
    taint = union(left.taint, right.taint, right.length if kind in {ast.In, ast.NotIn} else CLEAN)
    tags = equal_sizes.asked(left, right) | (_MASK if taint and ranks is None else NO_TAGS)
    return Value(taint, tags=tags, ranks=ranks)


def _device_number(frame: Frame, value: Value, node: ast.AST) -> Value:
    """The number of this process's GPU, where it is compared: `torch.cuda.current_device() == 0`."""
    if DEVICE_NUMBER not in value.tags or value.taint:
        return value
    return rank_value(frame, node, "torch.cuda.current_device()", "rank", "world")


def _boolean(frame: Frame, node: ast.BoolOp) -> Value:
    before = len(frame.out)
    value = evaluate(frame, node.values[0])
    events = len(frame.out) > before
    for number, item in enumerate(node.values[1:], 1):
        inside, other = frame.aside(item)
        if isinstance(node.op, ast.And) and _agreed_on(frame, node.values[:number], item, events):
            continue
        if inside:
            arms = (inside, []) if isinstance(node.op, ast.And) else ([], inside)
            frame.emit(Fork(value, ast.unparse(node.values[0])[:120], node.lineno, *arms))
        value = logic(isinstance(node.op, ast.And), value, other)
    return value


def _agreed_on(frame: Frame, asked: list[ast.expr], item: ast.expr, events: bool) -> bool:
    """`all_agree(x) and x`: where all ranks agreed on x, the second says nothing new."""
    text = ast.unparse(item)
    for call in asked:
        if events and isinstance(call, ast.Call) and any(ast.unparse(given) == text for given in call.args):
            kept, frame.out = frame.out, []
            clean = not evaluate(frame, call).taint
            frame.out = kept
            return clean
    return False


def _conditional(frame: Frame, node: ast.IfExp) -> Value:
    test = evaluate(frame, node.test)
    frame.control.append(in_doubt(test))
    then, one = frame.aside(node.body)
    other, two = frame.aside(node.orelse)
    frame.control.pop()
    if then or other:
        frame.emit(Fork(test, ast.unparse(node.test)[:120], node.lineno, then, other))
    asked = ast.unparse(node.test) if isinstance(node.test, ast.Compare) else ""
    if asked == f"{ast.unparse(node.orelse)} is None":
        two = present(two)
    elif asked == f"{ast.unparse(node.body)} is not None":
        one = present(one)
    return chosen(test, one, two)


def _sequence(frame: Frame, node: ast.List | ast.Tuple) -> Value:
    items = tuple(evaluate(frame, item) for item in node.elts)
    if any(isinstance(item, ast.Starred) for item in node.elts):
        return mixed(list(items))._replace(length=union(*(item.length for item in items)))
    kind: Callable[..., Any] = list if isinstance(node, ast.List) else tuple
    ranks = per_rank(lambda *each: kind(each), *items) if len(items) <= 64 else None
    known = mixed(list(items))._replace(items=items, ranks=ranks if items else (kind(()),) * WORLD)
    held = functions_of(items)
    if held and isinstance(node, ast.List) and not any(frame.control):
        frame.analysis.placed.update(held)
    known = known.tagged(*types) if (types := of_types(items)) else known
    return known._replace(holds=held)


def _set(frame: Frame, node: ast.Set) -> Value:
    items = [evaluate(frame, item) for item in node.elts]
    return mixed(items)._replace(tags=frozenset({"set"}), ranks=per_rank(lambda *each: set(each), *items))


def _slice(frame: Frame, base: Value, node: ast.Slice) -> Value:
    sides = [evaluate(frame, end) if end is not None else None for end in (node.lower, node.upper, node.step)]
    ends = [end for end in sides if end is not None]
    marks = union(*(end.taint for end in ends))
    length = CLEAN if equal_chunk(frame, node) or equal_sizes.even_share(base, sides[1], sides[2]) else marks
    tags = base.tags & (CARRIED | {"loader", "set"}) | {tag for tag in base.tags if tag.startswith(("dtype:", "cast:"))}
    if node.step is not None and ast.unparse(node.step) == "-1":
        tags |= {REVERSED}
    if node.lower is None and node.step is None and ends:
        tags |= equal_sizes.cut(ends[0])
    agreed = node.lower is None and node.upper is not None and AGREED_TAG in ends[0].tags and not ends[0].taint
    length = CLEAN if agreed else union(base.length, length)  # `mine[:fewest]`
    return Value(union(base.taint, marks), length, tags, order=base.order)


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    base = evaluate(frame, node.value)
    if last_name(node.value) == "environ":
        return asked_environment(frame, node, node.slice)
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if key in KEYS and base.fields is None and not any(isinstance(origin, Origin) for origin in base.taint):
        source = rank_sources("attribute")[key]
        return rank_value(frame, node, ast.unparse(node), source.kind, source.axis)
    if last_name(node.value) == "shape" and (place := equal_sizes.place_in_shape(node)) is not None:
        return mixed([base]).tagged(*place)
    if isinstance(node.slice, ast.Slice):
        return _slice(frame, base, node.slice)
    index = evaluate(frame, node.slice)
    drawn = implicit.operator_method(frame, base, node, "__getitem__")
    if drawn is not None and drawn.thing is not None:
        return drawn
    there = looked_up(base, index) or item_at(base, index)
    if there is None and (wrapped := each_of(base)) is not None:
        return wrapped._replace(taint=union(wrapped.taint, index.taint)) if "group" in wrapped.tags else wrapped
    put = put_there(frame, node.value, key)
    if (held := put or part_of(base, index, key) or there) is not None:
        return join([base.fields[key], held]) if put is not None and base.fields and key in base.fields else held
    ranks = per_rank(lambda a, b: a[b], base, index)
    masked = bool(isinstance(node.slice, ast.Compare) or "mask" in index.tags) and bool(base.taint or index.taint)
    length = union(base.taint, index.taint) if masked else union(index.length, _cut_columns(frame, node.slice))
    if masked and not any(isinstance(origin, Origin) for origin in length):
        length |= {Origin("data", "a mask keeps another number of elements on every rank", *frame.at(node))}
    taint = union(base.taint, index.taint)
    tags = base.tags & CARRIED | ({OWN_WIDTH} if key in _PADDED_FIELDS and taint else set())
    return Value(taint, length, tags, ranks) if taint or ranks is not None or length else UNKNOWN


def _cut_columns(frame: Frame, index: ast.expr) -> Taint:
    """`x[:, :longest]` where each rank has worked out its own number: why there are other columns elsewhere."""
    ends = index.elts if isinstance(index, ast.Tuple) else []
    cuts = [end for end in ends if isinstance(end, ast.Slice) and not equal_chunk(frame, end)]
    nodes = [side for cut in cuts for side in (cut.lower, cut.upper) if side is not None]
    values = [frame.aside(node)[1] for node in nodes if not isinstance(node, ast.Constant)]
    return union(*(value.taint for value in values if AMOUNT in value.tags))


def _comprehension(frame: Frame, node: Comprehension) -> Value:
    from whichrank.source.code.evaluating.comprehensions import comprehension

    return comprehension(frame, node)


def _formatted(frame: Frame, node: ast.JoinedStr) -> Value:
    parts = [evaluate(frame, part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
    for part in parts:
        implicit.operator_method(frame, part, node, "__format__", "__str__", "__repr__")
    first = node.values[0] if node.values else None
    root = evaluate(frame, first.value if isinstance(first, ast.FormattedValue) else first) if first else UNKNOWN
    return mixed(parts)._replace(tags=root.tags & {NODE_LOCAL})


def _lambda(frame: Frame, node: ast.Lambda) -> Value:
    """A function without a name: read when it is called."""
    if not any(isinstance(part, ast.Call) for part in walk(node.body)):
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
    return mixed(values)._replace(holds=functions_of(values), fields=fields if plain else None).tagged("dict")


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
    from whichrank.source.code.calling.calls import call

    return call(frame, node)


def _starred(frame: Frame, node: ast.Starred) -> Value:
    return evaluate(frame, node.value)


_HANDLERS: dict[type[ast.expr], Callable[[Frame, Any], Value]] = {
    ast.Constant: _constant, ast.Name: name, ast.Attribute: attribute, ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.Compare: _compare, ast.BoolOp: _boolean, ast.IfExp: _conditional, ast.List: _sequence, ast.Tuple: _sequence,
    ast.Set: _set,
    ast.Dict: _dictionary, ast.Subscript: _subscript, ast.ListComp: _comprehension, ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension, ast.DictComp: _comprehension, ast.JoinedStr: _formatted, ast.Lambda: _lambda,
    ast.NamedExpr: _named, ast.Yield: _yielded, ast.YieldFrom: _yielded, ast.Call: _call, ast.Starred: _starred,
}  # fmt: skip
