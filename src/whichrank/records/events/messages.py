"""Messages of the knowledge base."""

from __future__ import annotations

from msgspec import field

from whichrank.records.events.base import Event


class KnownMessage(Event, kw_only=True):
    """A line in which a signature of `facts/signatures` was recognised."""

    signature: str = ""
    captures: dict[str, str] = field(default_factory=dict)
    """The named parts of the message."""
    count: int = 1
    """How often this process printed it, where this is the last one that was kept."""
    retold: bool = False
    """Whether a person speaks of it in a sentence, and no output shows it."""
