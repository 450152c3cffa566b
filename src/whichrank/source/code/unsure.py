"""What was read too early: a function that asked for one which was still being read saw only a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from whichrank.source.code.index import Function

_NONE = 1 << 30


class Seen(Struct):
    """Whether something was asked for that is not read to its end."""

    open: bool = False


class Unsure(Struct):
    """Functions that are being read, by depth, and those that depend on one of them; these are read again once."""

    depth: dict[Function, int] = field(default_factory=dict)
    early: dict[Function, int] = field(default_factory=dict)
    """Functions that are read, with the depth of the outermost open function that they asked for."""
    again: set[Function] = field(default_factory=set)
    lowest: int = _NONE
    """The outermost open function that the function being read asked for."""
    kept: list[int] = field(default_factory=list)

    def touch(self, function: Function) -> None:
        at = self.depth.get(function)
        if at is None:
            at = self.early.get(function)
        if at is not None and at < self.lowest:
            self.lowest = at

    def start(self, function: Function) -> None:
        self.depth[function] = len(self.depth)
        self.kept.append(self.lowest)
        self.lowest = _NONE

    def end(self, function: Function) -> list[Function]:
        """The functions whose summary has to be thrown away: what they waited for is known now."""
        at, before = self.depth.pop(function), self.kept.pop()
        if self.lowest < at:
            if function not in self.again:
                self.early[function] = self.lowest
            self.lowest = min(before, self.lowest)
            return []
        self.lowest = before
        late = [each for each, outer in self.early.items() if outer >= at]
        for each in late:
            del self.early[each]
        self.again.update(late)
        return late

    @contextmanager
    def apart(self) -> Iterator[Seen]:
        """Whether something open is asked for meanwhile."""
        seen, before = Seen(), self.lowest
        self.lowest = _NONE
        try:
            yield seen
        finally:
            seen.open = self.lowest != _NONE
            self.lowest = min(before, self.lowest)
