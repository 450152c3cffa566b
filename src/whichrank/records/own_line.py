"""A line that one rank, or the host of one rank, printed and nobody else."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.model.evidence import Ref


@dataclass(frozen=True, slots=True)
class OwnLine:
    """What it says, of which rank, and what that rank was in by its words (a cause of the taxonomy)."""

    rank: int
    cause: str
    ref: Ref
    line: int
    of_host: bool = False
    """The host printed it, not the rank itself."""
    missing: bool = False
    """It is what nearly all other ranks printed, and this one did not."""
