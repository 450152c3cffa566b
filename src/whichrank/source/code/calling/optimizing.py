"""Optimizers: the steps that they take, and the schedules of their learning rates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.source.code.events import Update
from whichrank.source.code.summaries import Schedule
from whichrank.source.code.values import union

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_SCHEDULE = re.compile(r"(?:LR|LRScheduler|get_\w{0,80}?_schedule\w{0,80})$")
_OPTIMIZER = re.compile(r"(?:^|[._])(?:opt|optim|optimi[sz]er|scaler|grad_scaler)(?:_?\w{1,12})?$")


def optimized(frame: Frame, made: Call) -> None:
    """Note `optimizer.step()`, `scaler.step(optimizer)`, and schedules whose length may differ between ranks."""
    if made.name == "step" and _OPTIMIZER.search(made.receiver_text):
        frame.emit(Update(frame.function, made.node.lineno))
    elif _SCHEDULE.search(made.name):
        taint = union(*(value.taint for value in made.args[1:]), *(value.taint for value in made.keywords.values()))
        if taint:
            frame.analysis.notes.schedules.append(Schedule(frame.function.module, made.node.lineno, taint))
