"""Names and attributes: what a variable, a setting, a member of an object or a part of torch is on each rank."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.facts.collectives import collectives, rank_sources
from whichrank.source.code.calling import implicit
from whichrank.source.code.calling.sources import is_setting, rank_value, setting_name
from whichrank.source.code.evaluating.choices import CARRIED
from whichrank.source.code.evaluating.containers import ONE_OF_SEVERAL
from whichrank.source.code.evaluating.disks import NODE_LOCAL
from whichrank.source.code.evaluating.types import DTYPES
from whichrank.source.code.index import Class, Function, Module, resolve
from whichrank.source.code.paths.groups import SIZE_NAME, WORLD_GROUP, is_world
from whichrank.source.code.values import CLEAN, UNKNOWN, WORLD, Origin, Value, constant, union, world_size
from whichrank.source.nodes import dotted

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

# What every rank agrees on although the object itself differs.
AGREED = frozenset({
    "dtype", "device", "is_cuda", "requires_grad", "ndim", "layout", "is_sparse", "type", "training", "__class__",
    "placements", "device_mesh", "is_nested", "is_quantized", "is_leaf", "is_meta", "keys", "columns", "names",
    "format", "mode", "backend",
})  # fmt: skip
WORLD_NAMES = frozenset(
    {"world_size", "world", "num_processes", "nprocs", "n_ranks", "num_ranks", "ngpus", "WORLD_SIZE"}
)
WRAPPERS = frozenset({"ddp", "fsdp", "deepspeed"})
HANDED_ON = WRAPPERS | {"fsdp2", "metric", "accelerator", "group", ONE_OF_SEVERAL}
"""Kinds of things that stay what they are when a function hands them on, or an object keeps them."""
INNER = "inner model"
"""Marks what `model.module` of DistributedDataParallel or FSDP is."""
_COLLECTED = frozenset({
    "preds", "target", "targets", "labels", "scores", "indexes", "total", "correct", "tp", "fp", "tn", "fn", "confmat",
    "value", "weight", "values", "sum_value", "mean_value", "update_called", "update_count", "_update_called",
    "_update_count", "detection_scores", "detection_labels", "groundtruth_labels", "num_samples", "count",
})  # fmt: skip
"""States of torchmetrics: each rank has its own until compute() gathers them."""
TYPE = "a type"
"""Marks `torch.float16` and the like."""
ALIAS = "alias:"
"""Marks a variable that stands for a function of a library: `reduce = dist.all_reduce`."""


def name(frame: Frame, node: ast.Name) -> Value:
    """A variable, or what its name stands for."""
    known = frame.lookup(node.id)
    if known is not None:
        return known
    source = rank_sources("attribute").get(node.id)
    if source is not None and node.id not in frame.function.module.imports:
        return rank_value(frame, node, node.id, source.kind, source.axis)
    return world_size() if node.id in WORLD_NAMES else reference(frame, node.id)


def reference(frame: Frame, text: str) -> Value:
    """A name that stands for something of the project: a function, a class, a constant of a module."""
    full = resolve(frame.function.module, text)
    found = frame.analysis.project.find(full)
    if isinstance(found, Function | Class):
        return Value(thing=found, tags=frozenset({"itself"}))
    head, _, last = full.rpartition(".")
    if last in collectives() and head.startswith("torch.distributed"):
        return Value(tags=frozenset({f"{ALIAS}{full}"}))
    if head == "torch" and last in DTYPES:
        return Value(tags=frozenset({TYPE}))
    module = frame.analysis.project.modules.get(head)
    if isinstance(module, Module) and module is not frame.function.module:
        return frame.analysis.global_value(module, last) or UNKNOWN
    return UNKNOWN


def attribute(frame: Frame, node: ast.Attribute) -> Value:
    """`holder.name`: of an object of the project, of a configuration, of torch, of anything else."""
    from whichrank.source.code.evaluating.expressions import evaluate

    text = dotted(node)
    if text and text in frame.paths:
        return frame.paths[text]
    own = isinstance(node.value, ast.Name) and node.value.id == "self" and frame.owner is not None
    base = Value(thing=frame.owner) if own else evaluate(frame, node.value)
    if base.tags and (seen := _of_object(frame, node, base)) is not None:
        return seen
    source = rank_sources("attribute").get(node.attr)
    held = _member(frame, base, node)
    if held is not None and (held.taint or source is None):
        counts = (
            node.attr in WORLD_NAMES or SIZE_NAME.search(node.attr) is not None
        ) and "itself" not in held.tags  # the same, however it was worked out
        return held._replace(taint=CLEAN, length=CLEAN) if counts else held
    if source is not None:
        return rank_value(frame, node, text or node.attr, source.kind, source.axis)
    if base.fields is not None and node.attr in base.fields:
        return base.fields[node.attr]
    if (same := _same_for_all(text, node.attr)) is not None:
        return same
    if text and is_setting(text) and (told := _setting(frame, text, node.attr, base)) is not None:
        return told
    known = not own and not base.taint and text and node.attr != "grad"
    return reference(frame, text) if known else _part(frame, node, base)


def _of_object(frame: Frame, node: ast.Attribute, base: Value) -> Value | None:
    """The model inside a wrapper, and what a metric has collected on this rank."""
    if node.attr == "module" and base.tags & WRAPPERS:
        inner = base._replace(tags=base.tags - WRAPPERS)
        return inner.tagged(INNER) if base.tags & {"ddp", "fsdp"} and "prepared" not in base.tags else inner
    if "metric" in base.tags and node.attr in _COLLECTED:
        own = frozenset({Origin("data", "what this rank's metric has seen", *frame.at(node))})
        return Value(own, own)
    return None


def _setting(frame: Frame, text: str, name: str, base: Value) -> Value | None:
    """What is known of an option or a field of a configuration."""
    set_by = frame.analysis.settings.get(setting_name(text)) if name not in AGREED else None
    if set_by:
        return Value(union(base.taint, set_by))
    return Value(tags=frozenset({NODE_LOCAL})) if name in frame.analysis.traits.local_options else None


def _same_for_all(text: str, name: str) -> Value | None:
    """Attributes of torch.distributed, and the size of the world."""
    if name in WORLD_NAMES:
        return world_size()
    if "ReduceOp." in text:
        return constant(text.rpartition(".")[2])
    if is_world(text):
        return Value(tags=frozenset({"group", WORLD_GROUP}), ranks=(list(range(WORLD)),) * WORLD)
    return None


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
    if name == "grad" and frame.analysis.traits.local_gradients:
        return Value(frozenset({Origin("data", "this rank's part of the gradients", *frame.at(node))}))
    if base.taint or base.tags & CARRIED:
        kept = name in {"data", "T", "grad"} or "padded" in base.tags
        return Value(base.taint, base.length if kept else CLEAN, base.tags & CARRIED)
    return UNKNOWN
