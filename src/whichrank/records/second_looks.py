"""What a second look at the text finds, where the first leaves the cause open: own lines, posted code, near words."""

from __future__ import annotations

from msgspec import Struct

from whichrank.model.evidence import Ref
from whichrank.model.grades import Grade


class OwnLine(Struct, frozen=True):
    """What it says, of which rank, and what that rank was in by its words (a cause of the taxonomy)."""

    rank: int
    cause: str
    ref: Ref
    line: int
    of_host: bool = False
    """The host printed it, not the rank itself."""
    missing: bool = False
    """It is what nearly all other ranks printed, and this one did not."""
    behind: bool = False
    """It counts to an end that all other ranks have reached, and this one has not."""


class PostedFault(Struct, frozen=True):
    """What lint says of code in a note or beside the logs."""

    code: str
    """Of the lint rule."""
    cause: str
    category: str
    severity: str
    grade: Grade
    message: str
    refs: tuple[Ref, ...]
    """The operation first, then the way to what makes the ranks differ."""
    file: str
    line: int
    fix: tuple[str, ...]


STATED = 10.0
"""How much a known message tells that no rule has taken up, on the scale of words."""


class ClosestCause(Struct, frozen=True):
    """The cause, how close (to be compared with other causes of the same evidence only), how much the words tell at
    all, and the closest line."""

    cause: str
    score: float
    told: float
    ref: Ref


class OddHost(Struct, frozen=True):
    """A line of one host, and the line that all its peers have instead, if they have one."""

    host: str
    cause: str
    ref: Ref
    usual: Ref | None
    peers: int
    """How many hosts print it, this one included."""
    category: str = ""
    """What the job did, by the verdict so far."""
    gpu: int | None = None
    """Which of its GPUs it is about, by a table of GPUs."""
    what: str = ""
    """What differs, where the line itself does not say what it is about: the heading of a column, and the cell."""
    in_error: bool = False
    """An error of the job names what differs."""


class PartedValue(Struct, frozen=True):
    """A value that was the same on all ranks and changed with them, until some said another one."""

    ranks: tuple[int, ...]
    name: str
    theirs: str
    usual: str
    round: int
    """How often all had said it before."""
    refs: tuple[Ref, ...]
