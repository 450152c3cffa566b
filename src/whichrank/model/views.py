"""What a page draws beside the verdict: what each rank did last, and the stacks of all ranks merged."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Slice(Struct, frozen=True):
    """One collective of one rank, on the clock that all ranks share."""

    group: str
    seq: int
    op: str
    start_ns: int
    end_ns: int | None
    """None where it never finished."""
    place: str = ""
    """The line that issued it, where the evidence says."""


class Track(Struct, frozen=True):
    """Ranks that did the same, and their last collectives in the order of issue; times are those of the first rank."""

    ranks: tuple[int, ...]
    slices: tuple[Slice, ...] = ()


class Moment(Struct, frozen=True):
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


class Context(Struct, frozen=True):
    """A quoted line with the lines around it."""

    source: str
    locator: str
    line: int
    lines: tuple[tuple[int, str], ...]
    """Number and text."""


class StackNode(Struct, frozen=True):
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


class Unseen(Struct, frozen=True):
    """A process without a stack, and why."""

    pid: int | None
    rank: int | None
    why: str


class StackReport(Struct, frozen=True):
    """All that `stacks` has to say."""

    tree: tuple[StackNode, ...]
    ranks: tuple[int, ...]
    pids: tuple[int, ...] = ()
    """Processes that nothing gives a rank."""
    missing: tuple[Unseen, ...] = ()
