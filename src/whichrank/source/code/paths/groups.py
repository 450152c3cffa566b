"""Process groups: which operations run on the default one, and which conditions split a group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whichrank.source.code.values import WORLD, Origin, Value

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

WORLD_GROUP = "world group"
SIZE_NAME = re.compile(r"(?:world|parallel|(?:^|_)(?:tp|mp|pp|dp|ep|cp|sp))_size$|(?:^|_)num_stages$")
"""How many ranks a kind of group has: the same for all groups of that kind."""
_WORLD_TEXT = re.compile(r"(?:^|\.)(?:group|GroupMember)\.WORLD$")
_GROUP_NAME = re.compile(r"(?:^|_)(?:group|pg)$")
# One way to cut the ranks, by the words that people use in names of groups and of ranks in them.
_AXES = {
    "tensor": re.compile(r"tensor|(?:^|[^a-z])tp(?:[^a-z]|$)"),
    "pipeline": re.compile(r"pipe|(?:^|[^a-z])pp(?:[^a-z]|$)"),
    "data": re.compile(r"data|(?:^|[^a-z])(?:dp|ddp|fsdp)(?:[^a-z]|$)"),
    "context": re.compile(r"context|(?:^|[^a-z])cp(?:[^a-z]|$)"),
    "expert": re.compile(r"expert|(?:^|[^a-z])ep(?:[^a-z]|$)"),
    "sequence": re.compile(r"sequence|(?:^|[^a-z])sp(?:[^a-z]|$)"),
}
# Megatron's group of the first and the last stage of a pipeline, which hold the same matrix.
_EMBEDDING = re.compile(r"embed|embd|tied|shared_weight")


def is_world(text: str) -> bool:
    """`dist.group.WORLD`."""
    return _WORLD_TEXT.search(text) is not None


def group_text(value: Value, node: ast.expr | None) -> str:
    """The group as written; empty for the default group, also where a variable holds None or the default group."""
    if node is None:
        return ""
    deep = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)  # others may have set it
    nothing = not deep and value.ranks is not None and all(each is None for each in value.ranks)
    return "" if nothing or WORLD_GROUP in value.tags else ast.unparse(node)


def of_mesh(func: ast.expr, receiver: Value) -> str:
    """The mesh that a method is called on, as written."""
    if not isinstance(func, ast.Attribute):
        return ""
    text = ast.unparse(func.value)[:80]
    return text if "mesh" in receiver.tags or "mesh" in text else ""


def default_of(frame: Frame, name: str) -> tuple[None, ...] | None:
    """The value of a parameter for a group that no caller passes: its default, None."""
    function = frame.function
    if function.node is None or not _GROUP_NAME.search(name) or (function, name) in frame.analysis.known:
        return None
    arguments = function.node.args
    places = [*arguments.posonlyargs, *arguments.args]
    behind = dict(zip((a.arg for a in reversed(places)), reversed(arguments.defaults), strict=False))
    behind.update((a.arg, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None)
    default = behind.get(name)
    return (None,) * WORLD if isinstance(default, ast.Constant) and default.value is None else None


def splits(reasons: Iterable[Origin], group: str) -> bool:
    """Whether a condition on the place in a group parts the members of that same group."""
    return any(reason.kind == "part" and _same_axis(reason.what, group) for reason in reasons)


def parts(reasons: Iterable[Origin], group: str) -> bool:
    """Whether a place in one group tells the members of another apart: first and last stage share the embeddings."""
    places = [reason for reason in reasons if reason.kind == "part"]
    if splits(places, group):
        return True
    along = _axes(group) or ({"pipeline"} if _EMBEDDING.search(group.lower()) else set())
    return len(places) == 1 and len(along) == 1 and _axes(places[0].what) == along


def _axes(text: str) -> set[str]:
    return {axis for axis, words in _AXES.items() if words.search(text.lower())}


def _same_axis(what: str, group: str) -> bool:
    inside = what.partition("(")[2].rpartition(")")[0]
    if inside:
        same = inside.rpartition(".")[2] == group.rpartition(".")[2]  # `group` became `self.group`
        if same or group.startswith(f"{inside}.") or f'"{inside}"' in group or f"'{inside}'" in group:
            return True
    axes = _axes(inside or what)
    return len(axes) == 1 and axes == _axes(group)
