"""What a parameter holds in a function that is being read."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.calling.sources import rank_value
from whichrank.source.code.evaluating.choices import AGREED_TAG
from whichrank.source.code.evaluating.disks import default_tags
from whichrank.source.code.evaluating.names import WORLD_NAMES
from whichrank.source.code.paths.groups import SIZE_NAME, default_of
from whichrank.source.code.statements.loops import (
    BATCH_NAMES,
    COUNTER,
    GRADIENTS,
    LOADER_NAME,
    LOCAL_NAME,
    MASK_NAME,
    QUEUES,
)
from whichrank.source.code.values import CLEAN, UNKNOWN, Origin, ParamOrigin, Taint, Value, world_size
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame


def parameter(frame: Frame, name: str) -> Value:
    """What is known of a parameter: by its name, its annotation, and what callers pass."""
    if name == "self" and frame.owner is not None:
        return Value(thing=frame.owner)
    if name == "cls" and frame.function.owner is not None:
        return Value(thing=frame.function.owner, tags=frozenset({"itself"}))
    source = rank_sources("attribute").get(name)
    node = frame.function.node or ast.Pass()
    brought = frame.analysis.brought(frame.function, name)
    counted = COUNTER in brought.tags and not frame.analysis.resolve(brought.taint)  # each rank in turn, not this one
    if source is not None and not counted:
        return rank_value(frame, node, f"the parameter {name}", source.kind, source.axis)
    if name in WORLD_NAMES and brought.ranks is None:
        return world_size()
    if SIZE_NAME.search(name):
        return brought._replace(taint=CLEAN, length=CLEAN)
    taint: Taint = frozenset({ParamOrigin(frame.function, name)})
    length: Taint = frozenset({ParamOrigin(frame.function, name, length=True)})
    tags = brought.tags
    if brought is UNKNOWN:
        tags |= default_tags(frame, name)
    if LOADER_NAME.fullmatch(name):
        tags |= {"loader"}
    if _annotation(frame, name) in QUEUES:
        tags |= {"queue"}
    if MASK_NAME.fullmatch(name):
        tags |= {"mask"}
    agreed = AGREED_TAG in brought.tags and not frame.analysis.resolve(brought.taint)
    local = name in BATCH_NAMES or (name in GRADIENTS and frame.analysis.traits.local_gradients)
    if not agreed and not frame.analysis.gathers and (local or LOCAL_NAME.fullmatch(name)):
        taint |= {Origin("data", f"the parameter {name}: this rank's data", *frame.at(node))}
    ranks = brought.ranks if brought is not UNKNOWN else default_of(frame, name)
    return brought._replace(taint=taint, length=length, tags=tags, ranks=ranks)


def _annotation(frame: Frame, name: str) -> str:
    arguments = frame.function.node.args if frame.function.node is not None else None
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else []:
        if argument.arg == name and argument.annotation is not None:
            return last_name(argument.annotation)
    return ""
