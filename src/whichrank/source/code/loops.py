"""What a loop goes over: its elements, and why ranks may take another number of turns."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.index import Class
from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, Taint, Value, union

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

LOADER_NAME = re.compile(r"(?:\w*_)?(?:data_?)?loader\d?$", re.IGNORECASE)
_ROUND = re.compile(r"\bceil\b|//\s*(?:self\.)?_?(?:world|num_replicas|num_shards|nranks)|total_size|drop_last|pad")
BATCH_NAMES = frozenset({"batch", "minibatch", "micro_batch", "microbatch"})


def elements(frame: Frame, value: Value, node: ast.AST) -> Value:
    """What the loop variable is."""
    if "enumerate" in value.tags and value.items:
        return Value(items=(UNKNOWN, elements(frame, value.items[0], node)))
    if "zip" in value.tags and value.items is not None:
        return Value(items=tuple(elements(frame, item, node) for item in value.items))
    if "loader" in value.tags:
        origin = Origin("data", "a batch of this rank's data", *frame.at(node))
        return Value(frozenset({origin}), tags=frozenset({"element"}))
    if value.items:
        from whichrank.source.code.values import join

        return join(value.items)._replace(ranks=None)
    return Value(value.taint, tags=value.tags & {"wrapped_output"}) if value.taint or value.tags else UNKNOWN


def turns(frame: Frame, value: Value) -> Value:
    """The number of turns, as the length of a value."""
    if "enumerate" in value.tags and value.items:
        return turns(frame, value.items[0])
    if "zip" in value.tags and value.items is not None:
        each = [turns(frame, item) for item in value.items]
        ended = [item for item in each if not item.length and "endless" not in item.tags]
        return UNKNOWN if ended else Value(length=union(*(item.length for item in each)))
    if value.ranks is not None:
        try:
            counts = {len(v) for v in value.ranks}
        except TypeError:
            counts = set()
        if len(counts) == 1:
            return Value(ranks=value.ranks)
    if isinstance(value.thing, Class) and not value.length:
        return Value(length=object_length(frame, value))
    return value


def object_length(frame: Frame, value: Value) -> Taint:
    """Why objects of a class of the project differ in length, from its own __len__ or __iter__."""
    owner = value.thing
    if not isinstance(owner, Class) or rounds(value):
        return CLEAN
    for name in ("__len__", "__iter__"):
        method = frame.analysis.project.method(owner, name)
        if method is not None:
            summary = frame.analysis.summary(method)
            return summary.returns.taint if name == "__len__" else summary.turns
    return CLEAN


def rounds(value: Value) -> bool:
    """Whether a class of the project makes its shards equal itself."""
    if not isinstance(value.thing, Class):
        return False
    node = value.thing.node
    lines = value.thing.module.lines[node.lineno - 1 : node.end_lineno]
    return any(_ROUND.search(line) for line in lines)
