"""One value or another by a condition, and the truth of several conditions together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from whichrank.source.code.evaluating import equal_sizes
from whichrank.source.code.evaluating.disks import NODE_LOCAL
from whichrank.source.code.evaluating.ordering import other_order
from whichrank.source.code.evaluating.types import becomes_fraction, type_of
from whichrank.source.code.index import Class, Function
from whichrank.source.code.values import (
    CLEAN,
    WORLD,
    Taint,
    Value,
    differs,
    join,
    per_rank,
    union,
)

AGREED_TAG = "agreed"
"""Marks what came out of a collective and is the same on all ranks."""
PAST_WRAPPER = "past wrapper"
"""Marks what was computed by the module inside a wrapped model."""
GROWN = "grown"
"""Marks a list that was filled here: whether it is empty is told by its length, not by what is in it."""
CARRIED = frozenset({"wrapped_output", AGREED_TAG, NODE_LOCAL, PAST_WRAPPER})
"""Tags that what is computed from a value keeps."""
PRESENT = object()
"""Something of which only that it is there is known."""


def logic(both: bool, one: Value, other: Value) -> Value:
    if both:
        ranks = per_rank(lambda a, b: a and b, one, other)
        if ranks is None:
            ranks = _decided(one, other, False)
    else:
        ranks = per_rank(lambda a, b: a or b, one, other)
        if ranks is None:
            ranks = _decided(one, other, True)
    tags = (one.tags | other.tags) & CARRIED
    result = Value(union(in_doubt(one), in_doubt(other)), tags=tags, ranks=ranks)
    return result._replace(thing=one.thing or other.thing, tags=one.tags | other.tags) if not both else result


def in_doubt(value: Value) -> Taint:
    """Why the truth of a value may differ; `local_rank != -1` is the same everywhere."""
    if GROWN in value.tags:
        return value.length
    return value.taint if differs(value) else CLEAN


def _decided(one: Value, other: Value, by: bool) -> tuple[Any, ...] | None:
    """`known and unknown` is known where the known side decides on all ranks: the unknown is the same everywhere."""
    for side, unknown in ((one, other), (other, one)):
        if side.ranks is not None and not differs(unknown):
            truths = tuple(bool(v) for v in side.ranks)
            # Where the unknown, uniform side does not decide, the ranks differ as the known side says.
            return truths if len(set(truths)) > 1 else ((by,) * WORLD if truths[0] is by else None)
    return None


def chosen(test: Value, one: Value, two: Value) -> Value:
    """One value or the other, by a condition."""
    merged = join([one, two])
    if one.items and two.items and merged.items is not None:
        merged = merged._replace(items=tuple(chosen(test, a, b) for a, b in zip(one.items, two.items, strict=True)))
    if test.ranks is not None and one.ranks is not None and two.ranks is not None:
        picked = tuple(a if t else b for t, a, b in zip(test.ranks, one.ranks, two.ranks, strict=True))
        merged = merged._replace(ranks=picked)
    elif merged.ranks is not None and one.ranks != two.ranks:
        merged = merged._replace(ranks=None)
    filled = equal_sizes.filled(test, one, two)
    if differs(test) and not ("shared" in one.tags and "shared" in two.tags):
        shape = union(merged.length, test.taint) if _other_length(one, two) else merged.length
        tags = merged.tags
        if _is_none(one) or _is_none(two):
            tags |= {"optional"}
        cast = merged.cast
        if other_type(one, two):
            tags = frozenset(tag for tag in tags if not tag.startswith(("dtype:", "cast:")))
            cast = union(cast, test.taint)
        order = union(merged.order, test.taint) if other_order(one, two) else merged.order
        taint = union(merged.taint, test.taint)
        merged = merged._replace(taint=taint, length=shape, tags=tags, order=order, cast=cast)
        if test.ranks is not None and _is_none(one) != _is_none(two) and merged.ranks is None:
            there = not _is_none(one)
            merged = merged._replace(ranks=tuple(PRESENT if bool(t) is there else None for t in test.ranks))
        if merged.fields is not None:
            merged = merged._replace(fields=_fields_by(test, one, two, merged.fields))
        if len(merged.holds) > 1 and not _has_more(one, two):
            merged = _either_function(test, one, two, merged)
        if test.ranks is not None and _is_object(one) and _is_object(two) and one.thing is not two.thing:
            merged = merged._replace(ranks=tuple(one.thing if truth else two.thing for truth in test.ranks))
    return merged if filled is None else merged._replace(length=filled.length)


def present(value: Value) -> Value:
    """The same where it is known to be there: not None on any rank."""
    known = value.ranks if value.ranks is not None and None not in value.ranks else None
    return value._replace(tags=value.tags - {"optional"}, ranks=known)


def _fields_by(test: Value, one: Value, two: Value, fields: Mapping[Any, Value]) -> Mapping[Any, Value]:
    """Entries of a dictionary that one arm alone changed depend on the condition."""
    before, after = one.fields or {}, two.fields or {}
    return {
        key: value
        if before.get(key) is after.get(key)
        else value._replace(taint=union(value.taint, test.taint), ranks=None)
        for key, value in fields.items()
    }


def _has_more(one: Value, two: Value) -> bool:
    """Whether two lists of functions differ by what one has besides, or by their order alone."""
    few, many = sorted((set(one.holds), set(two.holds)), key=len)
    return few <= many and "itself" not in one.tags | two.tags


def _either_function(test: Value, one: Value, two: Value, merged: Value) -> Value:
    """`f = save if rank == 0 else skip`: which function it is, rank by rank where that is known."""
    picks = None
    if test.ranks is not None and isinstance(one.thing, Function) and isinstance(two.thing, Function):
        picks = tuple(one.thing if truth else two.thing for truth in test.ranks)
    return merged._replace(ranks=picks).tagged("dispatched")


def _is_object(value: Value) -> bool:
    return isinstance(value.thing, Class) and not value.kinds and "itself" not in value.tags


def other_type(one: Value, two: Value) -> bool:
    """Whether the two are tensors of different types: one was cast and the other was not, or both are known."""
    known = type_of(one), type_of(two)
    if all(known):
        return known[0] != known[1]
    if becomes_fraction(one, two):
        return True
    for prefix in ("cast:", "dtype:"):
        kinds = [{tag for tag in value.tags if tag.startswith(prefix)} for value in (one, two)]
        if kinds[0] != kinds[1] and (prefix == "cast:" or (kinds[0] and kinds[1])):
            return True
    return False


def _is_none(value: Value) -> bool:
    return value.ranks is not None and value.ranks[0] is None


def elements_of(shape: str) -> object:
    """The number of elements of a shape as written, `shape:4, 2`; the text itself where it is not a number."""
    try:
        return math.prod(math.ceil(float(part)) for part in shape.partition(":")[2].split(","))
    except ValueError:
        return shape


def _other_length(one: Value, two: Value) -> bool:
    shapes = [{tag for tag in value.tags if tag.startswith("shape:")} for value in (one, two)]
    if shapes[0] and shapes[1]:
        sizes = [{elements_of(tag) for tag in found} for found in shapes]
        return sizes[0] != sizes[1]
    if one.items is not None and two.items is not None:
        return len(one.items) != len(two.items)
    known = one.ranks is not None and two.ranks is not None and isinstance(one.ranks[0], list | tuple | range)
    return known and per_rank(len, one) != per_rank(len, two)
