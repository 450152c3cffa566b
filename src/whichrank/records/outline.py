"""What is known of the lines of a job's scripts."""

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
    exchanges: dict[str, tuple[int, ...]] = {}
    """Lines of the first half of an exchange, by file: a recv that a send follows, or the reverse."""
    by_rank: dict[str, tuple[tuple[int, int], ...]] = {}
    """Lines that a condition on the rank decides, by file."""
    functions: dict[str, tuple[tuple[int, int], ...]] = {}
    """First and last line of every function, by file."""
