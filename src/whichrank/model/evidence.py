"""Where a statement comes from, and how much of the evidence could be read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Quality = Literal["complete", "partial", "unusable", "ignored"]


class Ref(Struct, frozen=True):
    """One place in the evidence, with the words that stand there."""

    source: str
    locator: str
    quote: str
    rank: int | None = None
    host: str | None = None
    time: str | None = None

    @property
    def line(self) -> int:
        """Of `line 118`; 0 where it is not a line."""
        word = self.locator.rpartition(" ")[2]
        return int(word) if word.isdigit() else 0


class Source(Struct, frozen=True):
    """One file (or stream) that was looked at, and what came of it."""

    path: str
    reader: str
    quality: Quality
    note: str = ""


_DEFECT = "an answer of the rule, which has a defect"


def defect(error: Exception) -> str:
    """What is missing of a rule that failed."""
    return f"{_DEFECT} ({type(error).__name__}: {error})"[:200]


class Skipped(Struct, frozen=True):
    """A rule that could not be evaluated, and what was missing."""

    code: str
    missing: str

    @property
    def failed(self) -> bool:
        """Whether the rule itself is at fault, not the evidence."""
        return self.missing.startswith(_DEFECT)


class Coverage(Struct, frozen=True):
    """What was looked at: the only thing that "all clear" may be said of."""

    sources: tuple[Source, ...] = ()
    found: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    not_evaluated: tuple[Skipped, ...] = ()
