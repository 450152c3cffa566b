"""What a page draws beside the verdict: what each rank did last, and the stacks of all ranks merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """One collective of one rank, on the clock that all ranks share."""

    group: str
    seq: int
    op: str
    start_ns: int
    end_ns: int | None
    """None where it never finished."""
    place: str = ""
    """The line that issued it, where the evidence says."""


@dataclass(frozen=True, slots=True)
class Track:
    """Ranks that did the same, and their last collectives in the order of issue; times are those of the first rank."""

    ranks: tuple[int, ...]
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened on a host or to its ranks; what many ranks say alike is told once."""

    time_ns: int
    host: str
    """Empty where the evidence does not say."""
    ranks: tuple[int, ...]
    what: str
    source: str
    locator: str
    quote: str
    of_host: bool = False
    """By the host's kernel, not by the job."""


@dataclass(frozen=True, slots=True)
class Context:
    """A quoted line with the lines around it."""

    source: str
    locator: str
    line: int
    lines: tuple[tuple[int, str], ...]
    """Number and text."""


@dataclass(frozen=True, slots=True)
class StackNode:
    """One frame, the processes whose stacks go through it, and what they call next."""

    file: str
    line: int
    function: str
    ranks: tuple[int, ...]
    pids: tuple[int, ...] = ()
    """Processes that nothing gives a rank; below 0 where even the pid is unknown."""
    own: bool = False
    """A line of the training code, not of a library."""
    children: Sequence[StackNode] = ()

    @property
    def count(self) -> int:
        return len(self.ranks) + len(self.pids)


@dataclass(frozen=True, slots=True)
class Unseen:
    """A process without a stack, and why."""

    pid: int | None
    rank: int | None
    why: str


@dataclass(frozen=True, slots=True)
class StackReport:
    """All that `stacks` has to say."""

    tree: tuple[StackNode, ...]
    ranks: tuple[int, ...]
    pids: tuple[int, ...] = ()
    """Processes that nothing gives a rank."""
    missing: tuple[Unseen, ...] = ()
