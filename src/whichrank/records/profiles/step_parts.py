"""How much of a step went by before its data was there, as training loops print it."""

from __future__ import annotations

from msgspec import Struct


class StepParts(Struct, frozen=True):
    """The data time and the step time of one rank in one file, added up over its lines."""

    source: str
    rank: int | None
    step_s: float
    data_s: float
    count: int
    """Lines."""
    line: int
    quote: str
    """The last of them."""
    is_mean: bool = False
    """The times are means over all steps so far, as the loop prints them in parentheses."""
