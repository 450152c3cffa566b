"""What the training loop says of itself: its step, its phase, and the thread that it runs in.

A trainer's callbacks set it (`whichrank.integrations`), the watch inside the rank reads it at every beat. Copied into
the job beside `startup.py`: standard library only. `here()` is the copy that the watch reads, whoever calls it.
"""

from __future__ import annotations

import sys
import threading

INSIDE = "_whichrank_inside"
DATA, FORWARD, BACKWARD, OPTIMIZER = "data loading", "forward", "backward", "optimizer step"
CHECKPOINT, EVALUATION = "checkpoint", "evaluation"
LONG = frozenset({CHECKPOINT, EVALUATION})
"""What may take minutes while all others wait, and does no harm."""


class Marks:
    """The newest marks of this process; each is one assignment, so that a step pays nothing for it."""

    __slots__ = ("phase", "steps", "thread")

    def __init__(self) -> None:
        self.phase = ""
        self.steps = 0
        self.thread: int | None = None
        """The thread that trains, where that is not the main one (Ray Train)."""

    def enter(self, phase: str) -> str:
        """Say what begins now; what it was before."""
        before, self.phase = self.phase, phase
        self.thread = threading.get_ident()
        return before

    def told(self, activity: str, work: str) -> tuple[str, str]:
        """Part of the step and long work: as marked, or else as the frames say."""
        if not self.phase:
            return activity, work
        return self.phase, self.phase if self.phase in LONG else work


MARKS = Marks()


def here() -> Marks:
    """The marks that the watch of this process reads; its own where nobody watches."""
    if __name__.startswith(INSIDE) or INSIDE not in sys.modules:
        return MARKS
    from importlib import import_module

    try:
        marks: Marks = import_module(f"{INSIDE}.marks").MARKS
    except ImportError:  # watched by another version
        return MARKS
    return marks
