"""What a container gives for a key or a slice."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.index import Module, resolve
from whichrank.source.code.values import (
    WORLD,
    Value,
    functions_of,
    join,
    union,
)
from whichrank.source.nodes import dotted

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

_ROUNDED_UP = re.compile(r"\bceil\b|- 1\) *// *\w|-\(-|cdiv|div_up|divup")
_PADDED = re.compile(r"pad|extend\(|\+=? *\w+\[:|cycle|repeat|% *len")


ONE_OF_SEVERAL = "one of several groups"
"""Marks a group that has sisters: the ranks are cut into groups in a loop."""
EACH = "each "
"""Marks a container by what its elements are: `[DDP(m) for m in models]`."""


def groups_of(value: Value) -> frozenset[str]:
    """The marks of a container that such a group is put into: one of several by then."""
    return frozenset({f"{EACH}group", f"{EACH}{ONE_OF_SEVERAL}"}) if "group" in value.tags else frozenset()


def each_of(base: Value) -> Value | None:
    """A wrapped model out of a container of such."""
    tags = frozenset(tag.removeprefix(EACH) for tag in base.tags if tag.startswith(EACH))
    return Value(base.taint, tags=tags) if tags else None


def part_of(base: Value, index: Value, key: object) -> Value | None:
    """A dimension of a mesh, a field of a padded batch, one of several uneven parts."""
    if "mesh" in base.tags:
        return Value(tags=frozenset({"mesh"}))
    if "padded" in base.tags and key is not None:
        return base
    if "uneven parts" in base.tags and index.taint:
        return Value(union(base.taint, index.taint), index.taint)
    return None


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


def entry_of(frame: Frame, holder: ast.expr, key: object) -> tuple[Module, str] | None:
    """Where an entry of a dictionary of a module is kept: `_STATE["group"]`, also by the name of the module."""
    text = dotted(holder)
    if not text or text in frame.env or text in frame.closure or text in frame.paths or text.startswith("self."):
        return None
    full = resolve(frame.function.module, text)
    head, _, last = full.rpartition(".")
    module = frame.function.module if full == text and not head else frame.analysis.project.modules.get(head)
    return (module, f"{last}[{key!r}]") if module is not None else None


def put_there(frame: Frame, holder: ast.expr, key: object) -> Value | None:
    """What functions of the project put into an entry of a dictionary of a module."""
    place = entry_of(frame, holder, key) if key is not None else None
    return frame.analysis.known.get(place) if place is not None else None


def item_at(base: Value, index: Value) -> Value | None:
    """The element of a list or tuple at a place, rank by rank where that differs."""
    if base.items is None or index.ranks is None or not all(isinstance(place, int) for place in index.ranks):
        return None
    if not all(-len(base.items) <= place < len(base.items) for place in index.ranks):
        return None
    return _for_each([base.items[place] for place in index.ranks], index)


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


def equal_chunk(frame: Frame, node: ast.Slice) -> bool:
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
    return _ROUNDED_UP.search(text) is None or _PADDED.search(text) is not None
