"""What is known of a project before its functions are read: by its imports and its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from whichrank.source.code.averaging import averages, shards, wraps
from whichrank.source.code.evaluating.disks import local_options
from whichrank.source.code.index import Function, Project

_ONE_WIDTH = re.compile(r"padding['\"]?\s*[=:]\s*['\"]max_length")


class Traits(Struct, frozen=True):
    averages: bool
    """Whether a model is wrapped so that backward passes reduce gradients."""
    own_types: bool
    """Whether the program sets the type that new tensors have."""
    cuts: bool
    """Whether models are cut into DTensors by fully_shard()."""
    local_gradients: bool
    """Whether models are sharded, so that each rank sees a part of the gradients."""
    one_width: bool
    """Whether the project pads all batches to one width."""
    local_options: frozenset[str]
    """Options whose default is a path on a disk of this host."""
    log_handlers: tuple[Function, ...]
    """Methods of the project that Python's logging calls for every message."""


def traits_of(project: Project) -> Traits:
    modules = list(project.modules.values())
    return Traits(
        averages=any(map(averages, modules)),
        own_types=any("set_default_" in line for module in modules for line in module.lines),
        cuts=any(name.endswith(".fully_shard") for module in modules for name in module.imports.values()),
        local_gradients=any(map(shards, modules)) or not any(map(wraps, modules)),
        one_width=any("max_length" in line and _ONE_WIDTH.search(line) for module in modules for line in module.lines),
        local_options=frozenset(name for module in modules for name in local_options(module)),
        log_handlers=tuple(_handlers_of_records(project)),
    )


def _handlers_of_records(project: Project) -> Iterator[Function]:
    for module in project.modules.values():
        if "logging" in module.imports or any(name.startswith("logging.") for name in module.imports.values()):
            for owner in module.classes.values():
                emit = owner.methods.get("emit")
                if emit is not None and any(base.startswith("logging.") for base in project.lineage(owner)):
                    yield emit
