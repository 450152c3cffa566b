"""Messages: whether what one rank sends is what the other one receives."""

from __future__ import annotations

from typing import Literal

from whichrank.records.code import Disagreement, Reason
from whichrank.source.code.evaluating.choices import elements_of
from whichrank.source.code.evaluating.types import type_of
from whichrank.source.code.events import Op
from whichrank.source.code.paths.differences import operation
from whichrank.source.code.values import Value

Side = tuple[Op, int]
"""A send or a receive, and the rank that calls it."""


def same_label(one: Side, other: Side) -> bool:
    """Whether two halves carry one tag, as far as both are known."""
    mine, theirs = (op.label.ranks[rank] if op.label.ranks is not None else None for op, rank in (one, other))
    return mine == theirs or mine is None or theirs is None


def unlike(one: Side, other: Side) -> Disagreement | None:
    """A message that does not fit into what receives it."""
    sides = sorted((one, other), key=lambda side: side[0].kind.endswith("recv"))
    (sender, source), (receiver, target) = sides
    told: list[tuple[Literal["dtype", "size"], object, object]] = [
        ("dtype", type_of(sender.message), type_of(receiver.message)),
        ("size", _size(sender.message), _size(receiver.message)),
    ]
    for about, sent, received in told:
        if sent and received and sent != received:
            elements = " elements" if about == "size" else ""
            said = f"rank {source} sends {sent}{elements} and rank {target} receives into {received}{elements}"
            into = Reason("rank", said, operation(receiver).ref)
            return Disagreement(about, operation(sender), (into,), said)
    return None


def _size(value: Value) -> int:
    """The number of elements; 0 where it is not known for certain."""
    shapes = {elements_of(tag) for tag in value.tags if tag.startswith("shape:")}
    size = shapes.pop() if len(shapes) == 1 and not value.length else 0
    return size if isinstance(size, int) else 0
