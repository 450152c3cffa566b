"""What `compare` does: what differs between two runs, most suspicious first. One comparer per kind of input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from whichrank.model.difference import Difference
from whichrank.model.errors import UsageError


class Kind(Struct, frozen=True):
    """A kind of input: whether a path is one, and how two of them are compared."""

    name: str
    holds: Callable[[Path], bool]
    compare: Callable[[Path, Path], tuple[list[Difference], list[str]]]
    """Differences, and what was looked at, in words."""


def kinds() -> list[Kind]:
    """Those there are; each is loaded when asked."""
    from whichrank.flows.compare import guards, runs, traces

    return [
        Kind("guard records", guards.holds, guards.compare),
        Kind("profiler traces", traces.holds, traces.compare),
        Kind("results of run, or bundles", runs.holds, runs.compare),
    ]


def compare(a: Path, b: Path) -> tuple[list[Difference], list[str]]:
    """All kinds that both hold."""
    differences: list[Difference] = []
    looked: list[str] = []
    for kind in kinds():
        if kind.holds(a) and kind.holds(b):
            found, words = kind.compare(a, b)
            differences += found
            looked += words
    if not looked:
        names = ", ".join(kind.name for kind in kinds())
        raise UsageError(f"{a} and {b} hold nothing of the same kind that can be compared", f"Known kinds: {names}.")
    return sorted(differences, key=lambda d: -d.suspicion), looked
