"""What is kept of a message that stands in a text again and again."""

from __future__ import annotations

from heapq import heappush, heappushpop

from whichrank.facts.messages import Signature, order
from whichrank.records.events.messages import KnownMessage

FIRST, LAST = 50, 50
"""Messages kept per signature and process."""


class Kept:
    """Messages of one signature by one process: the first and the last."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[KnownMessage] = []
        self.last: list[tuple[int, int, KnownMessage]] = []
        """A heap: lines that look alike are read later than others, and the nearest to the end are kept."""

    def add(self, message: KnownMessage) -> bool:
        """Keep it; whether more is kept than before."""
        self.count += 1
        item = (message.line, self.count, message)
        if len(self.first) < FIRST:
            self.first.append(message)
        elif len(self.last) < LAST:
            heappush(self.last, item)
        else:
            heappushpop(self.last, item)
            return False
        return True

    def needs(self, line: int) -> bool:
        """Whether a message in this line would be kept, where those behind it were read before."""
        return len(self.last) < LAST or self.last[0][0] < line


class Alike:
    """What was found in lines that look alike: after some of them nothing else is looked for."""

    __slots__ = ("count", "found")

    def __init__(self) -> None:
        self.count = 0
        self.found: dict[str, Signature] = {}

    @property
    def signatures(self) -> list[Signature]:
        return sorted(self.found.values(), key=lambda signature: order()[signature.id])
