"""A message that is known, seen in some text."""

from __future__ import annotations

from dataclasses import field

from whichrank.model.evidence import Ref
from whichrank.model.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sighting:
    """One line in which a signature of `facts/signatures` was recognised."""

    signature: str
    ref: Ref
    line: int
    rank: int | None = None
    """Global rank of the process that printed it."""
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None
    time_ns: int | None = None
    after_ns: int | None = None
    """The newest time seen earlier in the same file, where the line has none."""
    groups: dict[str, str] = field(default_factory=dict)
    """The named parts of the message."""
    count: int = 1
    """How often this process printed it, where this is the last one that was kept."""
