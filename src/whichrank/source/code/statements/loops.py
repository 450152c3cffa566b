"""What a loop goes over: its elements, and why ranks may take another number of turns."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.containers import each_of
from whichrank.source.code.index import Class, Module
from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, Taint, Value, union
from whichrank.source.nodes import last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

LOADER_NAME = re.compile(r"(?:\w*_)?(?:data_?)?loader\d?$", re.IGNORECASE)
_ROUND = re.compile(r"\bceil\b|//\s*(?:self\.)?_?(?:world|num_replicas|num_shards|nranks)|total_size|drop_last|pad")
_PEERS = frozenset({"send", "recv", "isend", "irecv"})
_MOST_ROUNDS = 8
COUNTER = "counter"
"""Marks the numbers of a range()."""
QUEUES = frozenset({"Queue", "SimpleQueue", "JoinableQueue", "LifoQueue", "PriorityQueue"})
BATCH_NAMES = frozenset({
    "batch", "minibatch", "micro_batch", "microbatch", "preds", "predictions", "outputs", "losses", "loss", "logits",
    "labels", "targets", "samples", "features", "feats", "embeddings", "texts", "images", "boxes", "detections",
})  # fmt: skip
"""What people call this rank's data where it is handed to a function."""
GRADIENTS = frozenset({"grads", "gradients", "grad_list"})
LOCAL_NAME = re.compile(r"local_(?!\w*(?:rank|size|world|dir|path|file|id|rank|bs|steps?|epochs?)\b)\w+")
MASK_NAME = re.compile(r"(?:\w*_)?(?:mask|keep)$")


def elements(frame: Frame, value: Value, node: ast.AST) -> Value:
    """What the loop variable is."""
    if "enumerate" in value.tags and value.items:
        return Value(items=(Value(tags=frozenset({COUNTER})), elements(frame, value.items[0], node)))
    if "zip" in value.tags and value.items is not None:
        return Value(items=tuple(elements(frame, item, node) for item in value.items))
    if value.tags & {"loader", "prepared"}:
        origin = Origin("data", "a batch of this rank's data", *frame.at(node))
        return Value(frozenset({origin}), tags=frozenset({"element"}))
    if "pairs" in value.tags:
        return Value(items=(UNKNOWN, elements(frame, value._replace(tags=value.tags - {"pairs"}), node)))
    if value.holds:
        tags = frozenset({"itself"}) | (value.tags & {"dispatched"})
        return Value(value.taint, thing=value.holds[0], tags=tags, holds=value.holds)
    if value.kinds and value.thing is None:
        several = len(value.kinds) > 1 or frame.analysis.some_have(value.kinds[0])
        return Value(value.taint, thing=value.kinds[0], kinds=value.kinds if several else ())
    wrapped = each_of(value)
    if wrapped is None and value.items:
        from whichrank.source.code.values import join

        return join(value.items)._replace(ranks=None)
    kept = value.tags & {"wrapped_output", COUNTER}
    return wrapped or (Value(value.taint, tags=kept) if value.taint or kept else UNKNOWN)


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


def unrolled(module: Module, value: Value, node: ast.For | ast.AsyncFor) -> list[Value] | None:
    """The loop variable turn by turn, where a short known loop talks to one peer after the other, or makes groups."""
    each = turn_by_turn(value) if module.meets_some else None
    if each is None or node.orelse:
        return None
    inside = [part for statement in node.body for part in walk(statement)]
    if any(isinstance(part, ast.Break | ast.Continue) for part in inside):
        return None
    calls = {last_name(part.func) for part in inside if isinstance(part, ast.Call)}
    cut = "new_group" in calls and len(each) > 1  # one turn means that four ranks are too few to see the groups
    return each if cut or calls & _PEERS else None


def turn_by_turn(value: Value) -> list[Value] | None:
    """What a loop takes turn by turn, where that is known and short."""
    if value.ranks is None or not all(isinstance(each, list | tuple) for each in value.ranks):
        return None
    if len({len(each) for each in value.ranks}) != 1 or len(value.ranks[0]) > _MOST_ROUNDS:
        return None
    same = [len(set(map(str, turn))) == 1 for turn in zip(*value.ranks, strict=True)]
    taint = CLEAN if all(same) else union(value.taint, value.length)
    return [Value(taint, ranks=tuple(turn)) for turn in zip(*value.ranks, strict=True)]


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
