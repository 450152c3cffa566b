"""Where a statement comes from, and how much of the evidence could be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quality = Literal["complete", "partial", "unusable", "ignored"]


@dataclass(frozen=True, slots=True)
class Ref:
    """One place in the evidence, with the words that stand there."""

    source: str
    locator: str
    quote: str
    rank: int | None = None
    host: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One file (or stream) that was looked at, and what came of it."""

    path: str
    reader: str
    quality: Quality
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not be evaluated, and what was missing."""

    code: str
    missing: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at: the only thing that "all clear" may be said of."""

    sources: tuple[Source, ...] = ()
    found: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    not_evaluated: tuple[Skipped, ...] = ()
