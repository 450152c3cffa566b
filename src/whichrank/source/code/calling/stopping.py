"""Flags that end a trainer's loop: Lightning's and transformers' trainers read them on each rank."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating.choices import AGREED_TAG
from whichrank.source.code.events import Event, Op, blocks
from whichrank.source.code.receivers import uses
from whichrank.source.code.values import Value

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

_STEP = "training step"
STOPS = {"should_stop": "trainer", "should_training_stop": "hf_trainer", "should_epoch_stop": "hf_trainer"}
"""Attributes that end a trainer's loop on this rank, and whose they are."""


def stopped(frame: Frame, target: ast.Attribute, value: Value) -> None:
    """`trainer.should_stop = True`: trainers leave their loop by it, each rank for itself."""
    tag = STOPS.get(target.attr)
    if tag is None or not uses(frame, "lightning" if tag == "trainer" else "transformers"):
        return
    if value.ranks is not None and value.ranks[0] is True:
        frame.emit(Op(_STEP, "collective", frame.function, target.lineno, tag=tag))
    elif AGREED_TAG in value.tags and not value.taint and not frame.control:
        _withdraw(frame.out)  # what some ranks asked for before, all agree on now


def _withdraw(events: list[Event]) -> None:
    events[:] = [event for event in events if not (isinstance(event, Op) and event.name == _STEP)]
    for event in events:
        for block in blocks(event):
            _withdraw(block)
