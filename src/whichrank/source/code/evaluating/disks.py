"""Paths on a disk of this host: what lies there differs between hosts, unlike on a shared file system."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.index import Module
from whichrank.source.code.values import NO_TAGS, Value
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

NODE_LOCAL = "node local"
_MARKED = frozenset({NODE_LOCAL})
_ROOTS = re.compile(
    r"/(?:var/tmp|tmp|dev/shm|run/user|local(?:_?scratch|_?ssd|_?disk|_?nvme|_?storage)?|l?scratch/local|lscratch|ssd|nvme"
    r"|node_?local|instance_?store|raid\d?|opt/dlami/nvme|mnt/(?:local|nvme|ssd|ephemeral|resource|instance|raid)[\w-]*"
    r"|(?:scratch|data|ssd|nvme)[_-]?local)\d{0,3}(?:/|$)",
    re.IGNORECASE,
)


def is_local_path(value: object) -> bool:
    """Whether a text is a path on a disk that each host has for itself."""
    return isinstance(value, str) and _ROOTS.match(value.removeprefix("file://")) is not None


def path_tags(value: object) -> frozenset[str]:
    return _MARKED if is_local_path(value) else NO_TAGS


def asked_directory(name: object) -> Value | None:
    """A variable of the environment that holds such a path: `$SLURM_TMPDIR`."""
    return Value(tags=_MARKED) if str(name) in rank_sources("local directory") else None


def host_state(node: ast.expr | None) -> str:
    """A file in which the kernel tells the state of this host: `/proc/meminfo`, `/sys/class/…`."""
    text = node.value if isinstance(node, ast.Constant) else None
    return text if isinstance(text, str) and text.startswith(("/proc/", "/sys/")) else ""


def on_this_host(values: Iterable[Value]) -> bool:
    return any(NODE_LOCAL in value.tags for value in values)


def local_options(module: Module) -> Iterable[str]:
    """Options of the command line whose default is such a path: `add_argument("--work-dir", default="/tmp/run")`."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in {"add_argument", "option"}:
            default = next((k.value for k in node.keywords if k.arg == "default"), None)
            if isinstance(default, ast.Constant) and is_local_path(default.value):
                names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                yield from (name.lstrip("-").replace("-", "_") for name in names if name.startswith("--"))


def default_tags(frame: Frame, name: str) -> frozenset[str]:
    """What the default of a parameter says about it."""
    node = frame.function.node
    if node is None:
        return NO_TAGS
    places = [*node.args.posonlyargs, *node.args.args]
    given = dict(zip((a.arg for a in reversed(places)), reversed(node.args.defaults), strict=False))
    given.update((a.arg, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None)
    default = given.get(name)
    return path_tags(default.value) if isinstance(default, ast.Constant) else NO_TAGS
