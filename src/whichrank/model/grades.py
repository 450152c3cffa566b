"""How strongly evidence speaks for a cause, and how often evidence like it was right.

A rule says two things of its finding: the grade (it proves, supports or hints) and the kind of evidence that it rests
on. The table turns both into a confidence; nothing else does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

Kind = Literal["records", "stacks", "messages", "host", "timing", "settings", "code", "reports"]
"""records: dumps and recorded calls. messages: what programs and libraries print. host: kernel logs, counters, probes.
timing: statistics of durations. code: the source of the program. reports: what people write."""


class Grade(IntEnum):
    """What a piece of evidence does for a hypothesis."""

    CONTRADICTS = 0
    HINTS = 1
    SUPPORTS = 2
    PROVES = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    def lowered(self, steps: int = 1) -> Grade:
        """So many steps weaker; it still speaks for the cause."""
        return Grade(max(Grade.HINTS, self - steps))


_GRADES = (Grade.HINTS, Grade.SUPPORTS, Grade.PROVES)
_TABLE: dict[Kind, tuple[float, float, float]] = {
    "records": (0.5, 0.78, 0.93),
    "stacks": (0.5, 0.74, 0.9),
    "messages": (0.48, 0.72, 0.9),
    "host": (0.45, 0.7, 0.9),
    "timing": (0.45, 0.68, 0.85),
    "settings": (0.5, 0.8, 0.95),
    "code": (0.45, 0.66, 0.85),
    "reports": (0.42, 0.6, 0.8),
}
"""By kind: what hints, what supports, what proves."""
_PROVEN, _SUPPORTED = 0.85, 0.6
_STEP, _MOST = 0.3, 0.97
"""Every further kind of evidence takes away this share of the doubt, up to a limit."""


def confidence(grade: Grade, kind: Kind) -> float:
    """The table."""
    return _TABLE[kind][_GRADES.index(grade)]


def raised(sure: float, kinds: int) -> float:
    """The same where so many other kinds of evidence say the same."""
    return round(max(sure, min(_MOST, 1 - (1 - sure) * (1 - _STEP) ** kinds)), 2)


def graded(probability: float) -> Grade:
    """The grade of a number that comes from elsewhere: a plug-in, an earlier verdict."""
    return Grade.PROVES if probability >= _PROVEN else Grade.SUPPORTS if probability >= _SUPPORTED else Grade.HINTS
