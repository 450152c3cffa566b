"""A fault that reading the posted code shows."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.model.evidence import Ref


@dataclass(frozen=True, slots=True)
class PostedFault:
    """What lint says of code in a note or beside the logs."""

    code: str
    """Of the lint rule."""
    cause: str
    category: str
    severity: str
    confidence: float
    message: str
    refs: tuple[Ref, ...]
    """The operation first, then the way to what makes the ranks differ."""
    file: str
    line: int
    fix: tuple[str, ...]
