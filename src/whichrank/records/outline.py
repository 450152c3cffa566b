"""What is known of the lines of a job's scripts."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict


class Loop(Struct, frozen=True):
    """One loop of a script."""

    first: int
    last: int
    exits: bool
    """It can be left before its iterable ends."""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


Spans = dict[str, tuple[tuple[int, int], ...]]
"""By file, first and last lines."""


class Outline(Struct, frozen=True):
    """What is known of the scripts' lines, by file."""

    loops: dict[str, tuple[Loop, ...]] = {}
    branches: Spans = {}
    """Lines that are not reached every time, by file; a file that is missing here was not looked at."""
    exchanges: dict[str, tuple[int, ...]] = {}
    """Lines of the first half of an exchange, by file: a recv that a send follows, or the reverse."""
    by_rank: Spans = {}
    """Lines that a condition on the rank decides, by file."""
    sorts: Spans = {}
    """Statements, and heads of loops, that put something in an order."""
    functions: Spans = {}
    """First and last line of every function, by file."""
    calls: Spans = {}
    """Lines of calls, by file, each with the first line of the function that it may be of."""

    names_called: dict[str, tuple[tuple[int, str, str], ...]] = {}
    """Lines of calls, by file, each with the name that is called and the name of the group that it is given."""

    counters: dict[str, frozenset[str]] = {}
    """Names, by file, that change as a rank goes on: their values tell how far it is."""
    roles: dict[str, frozenset[str]] = {}
    """Names, by file, that hold what is computed from the rank alone."""

    def function_of(self, file: str, line: int) -> tuple[int, int] | None:
        """First and last line of the function that this line is in."""
        around = [span for span in self.functions.get(file, ()) if span[0] <= line <= span[1]]
        return max(around, default=None)


def joined(outlines: Iterable[Outline]) -> Outline:
    """One of all, the later ones above the earlier."""
    told = [asdict(outline) for outline in outlines]
    keys = told[0] if told else ()
    return Outline(**{key: {file: rows for one in told for file, rows in one[key].items()} for key in keys})
