"""A known cause whose wording the evidence comes close to."""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ClosestCause:
    """The cause, how close (to be compared with other causes of the same evidence only), and the closest line."""

    cause: str
    score: float
    ref: Ref
