"""Models that fully_shard() cuts into DTensors: which object holds them, and norms over them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.containers import EACH
from whichrank.source.code.events import Op
from whichrank.source.code.index import Class
from whichrank.source.code.values import Origin, Value
from whichrank.source.nodes import dotted, last_name, walk

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame


def sharded(frame: Frame, made: Call) -> Value:
    """fully_shard() changes the module it is given."""
    value = made.args[0].tagged("fsdp", "fsdp2")
    text = dotted(made.node.args[0])
    if text in frame.env:
        frame.env[text] = value
    elif text.startswith("self.") and text.count(".") == 1:
        frame.paths[text] = value
    _keep_sharded(frame, made.node.args[0], value)
    return value


def _keep_sharded(frame: Frame, node: ast.expr, value: Value) -> None:
    """Whose attribute it is that was sharded, or the list of whose elements: `for block in model.blocks`."""
    if isinstance(node, ast.Name) and (whole := _looped_over(frame, node.id)) is not None:
        _keep_sharded(frame, whole, Value(tags=frozenset({f"{EACH}fsdp", f"{EACH}fsdp2"})))
    elif isinstance(node, ast.Subscript):
        _keep_sharded(frame, node.value, Value(tags=frozenset({f"{EACH}fsdp", f"{EACH}fsdp2"})))
    elif isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        if inner is not None and last_name(node.func) in _LISTED:
            _keep_sharded(frame, inner, value)
    elif isinstance(node, ast.Attribute) and isinstance(owner := frame.aside(node.value)[1].thing, Class):
        frame.analysis.gather(owner, node.attr, value)


def _looped_over(frame: Frame, name: str) -> ast.expr | None:
    """What a loop of this function takes a variable from."""
    body = frame.function.node
    for node in walk(body) if body is not None else frame.function.module.nodes:
        if isinstance(node, ast.For) and any(isinstance(n, ast.Name) and n.id == name for n in walk(node.target)):
            return node.iter
    return None


_LISTED = frozenset({"enumerate", "reversed", "list", "values", "children", "items", "named_children"})
"""Calls that go through the parts of a module or of a list."""


def clipped(frame: Frame, made: Call) -> Value | None:
    """The norm over parameters that fully_shard() cut into DTensors is reduced over the ranks."""
    name = made.name in {"clip_grad_norm_", "get_total_norm"} and made.full.startswith("torch.nn.utils")
    if not name or not made.args or not _cut(frame, made):
        return None
    frame.emit(Op(made.name, "collective", frame.function, made.node.lineno, tag="fsdp"))
    frame.analysis.notes.operations += 1
    return Value(tags=frozenset({"agreed"}))


def _cut(frame: Frame, made: Call) -> bool:
    """Whether parameters are DTensors: those of a sharded model, or of one of which nothing is known here."""
    given = made.args[0]
    if "fsdp2" in given.tags:
        return True
    unknown = not given.tags and given.thing is None and not any(isinstance(o, Origin) for o in given.taint)
    return unknown and frame.analysis.traits.cuts and ast.unparse(made.node.args[0]).endswith("parameters()")
