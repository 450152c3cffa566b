"""Where the loops of a job's scripts are."""

from __future__ import annotations

from msgspec import Struct


class Loop(Struct, frozen=True):
    """One loop of a script."""

    first: int
    last: int
    exits: bool
    """It can be left before its iterable ends."""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


class Outline(Struct, frozen=True):
    """All loops and branches of the scripts, by file."""

    loops: dict[str, tuple[Loop, ...]]
    branches: dict[str, tuple[tuple[int, int], ...]] = {}
    """Lines that are not reached every time, by file; a file that is missing here was not looked at."""
