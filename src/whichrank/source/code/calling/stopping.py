"""Flags that end a trainer's loop: Lightning's and transformers' trainers read them on each rank."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichrank.source.code.events import Op
from whichrank.source.code.libraries import uses
from whichrank.source.code.values import Value

if TYPE_CHECKING:
    from whichrank.source.code.frame import Frame

STOPS = {"should_stop": "trainer", "should_training_stop": "hf_trainer", "should_epoch_stop": "hf_trainer"}
"""Attributes that end a trainer's loop on this rank, and whose they are."""


def stopped(frame: Frame, target: ast.Attribute, value: Value) -> None:
    """`trainer.should_stop = True`: trainers leave their loop by it, each rank for itself."""
    tag = STOPS.get(target.attr)
    if tag is None or not uses(frame, "lightning" if tag == "trainer" else "transformers"):
        return
    if value.ranks is not None and value.ranks[0] is True:
        frame.emit(Op("training step", "collective", frame.function, target.lineno, tag=tag))
