"""Optimizer steps that some replicas leave out: their weights drift apart although all gradients are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from whichrank.records.code import Habit
from whichrank.source.code.events import Attempt, Enter, Event, Fork, Leave, Update, blocks, ending
from whichrank.source.code.paths.differences import Rest, place
from whichrank.source.code.values import Origin

if TYPE_CHECKING:
    from whichrank.source.code.paths.partings import Judge

_OWN = frozenset({"data", "random", "time", "exception"})
_DEEPEST = 4


def left_out(judge: Judge, event: Fork, after: Rest, reasons: list[Origin]) -> Iterator[Habit]:
    """A branch by what this rank alone has, with a step of the optimizer on one side only."""
    own = [reason for reason in reasons if reason.kind in _OWN]
    if not judge.analysis.traits.averages or len(own) < len(reasons):
        return
    ends = ending(event.then), ending(event.other)
    if "raise" in ends or "exit" in ends:
        return
    sides = []
    for events, end in zip((event.then, event.other), ends, strict=True):
        behind = _behind(after) if end is None and any(ends) else ()
        sides.append(next(_updates(judge, [*events, *behind], 0), None))
    made = sides[0] or sides[1]
    if made is None or (sides[0] is not None and sides[1] is not None):
        return
    said = f"some ranks leave out this step: {own[0].what} decides, and the replicas drift apart"
    where = made.line if made.function is judge.function else event.line
    decided = place(judge.function.module, event.line)
    others = tuple(dict.fromkeys((decided, *(judge.reason(origin).ref for origin in own[:2]))))
    yield Habit("step left out", place(judge.function.module, where), said, others)


def _behind(rest: Rest) -> list[Event]:
    """What follows in this turn of the loop, or in this function."""
    found: list[Event] = []
    current: Rest | None = rest
    while current is not None:
        found += current.events
        current = current.outer if current.loop is None else None
    return found


def _updates(judge: Judge, events: Iterable[Event], depth: int) -> Iterator[Update]:
    """Steps of optimizers in there, through calls too, up to where it leaves."""
    for event in events:
        if isinstance(event, Update):
            yield event
        elif isinstance(event, Leave):
            return
        elif isinstance(event, Enter):
            if depth < _DEEPEST:
                yield from _updates(judge, judge.analysis.summary(event.function).events, depth + 1)
        else:
            inner = (event.body, event.orelse, event.final) if isinstance(event, Attempt) else blocks(event)
            for block in inner:
                yield from _updates(judge, block, depth)
