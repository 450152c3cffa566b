"""Where the loops of a job's scripts are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a script."""

    first: int
    last: int
    exits: bool
    """It can be left before its iterable ends."""

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


@dataclass(frozen=True, slots=True)
class Outline:
    """All loops of the scripts, by file."""

    loops: dict[str, tuple[Loop, ...]]
