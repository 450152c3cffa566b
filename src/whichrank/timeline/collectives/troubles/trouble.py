"""What the lined-up dumps say is wrong: one trouble per independent fault, in plain terms.

Rules turn a trouble into a finding; nothing here knows causes, texts or fixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.grades import Grade
from whichrank.timeline.collectives.meetings import Meeting

Shape = Literal[
    "stopped",  # issues nothing and waits for nothing that was recorded, while others wait for it
    "lost",  # left no dump, and is the only one missing where others wait
    "undecided",  # one of several ranks without a dump
    "skipped",  # went past an operation that the others joined
    "added",  # issued an operation that the others did not
    "alone",  # waits in an operation that all others have no part in, and they don't wait for it
    "left-loop",  # went on to code behind the loop in which the others still are
    "left-messages",  # waits in a collective while the others wait for messages of it
    "swapped",  # issued two operations of one group in the other order
    "crossed",  # used two groups in the other order
    "size",  # same operation, other element count
    "dtype",  # same operation, other data type
    "root",  # same operation, other root
    "reduce-op",  # same operation, other reduction
    "send-missing",  # a recv whose send never came, or a send whose recv never came
    "p2p-cycle",  # sends and recvs that wait for each other
    "stalled",  # everybody came and agrees, nobody finishes
    "not-started",  # everybody came, on these ranks the GPU has not begun
]


# A rank that did not come, and nothing of what it called instead.
NOT_THERE = ("stopped", "lost", "undecided")
# The same operation with other arguments: NCCL goes on with wrong numbers.
ARGUMENTS = ("size", "dtype", "root", "reduce-op")
# What messages themselves tell.
OF_MESSAGES = ("left-messages", "send-missing", "p2p-cycle")
# One operation more or less than the others, or in another order.
_SHIFTS = ("added", "alone", "skipped", "left-loop")


class Trouble(Struct, frozen=True):
    """One fault, as far as the dumps show it."""

    shape: Shape
    ranks: tuple[int, ...]
    """The culprits; empty where the dumps don't single anybody out."""
    meeting: Meeting
    """Where it shows."""
    victims: tuple[int, ...] = ()
    acted: int | None = None
    """Row of what a culprit issued instead."""
    due: int | None = None
    """Row (of another rank or an earlier step) that shows what the culprit should have issued."""
    other: Meeting | None = None
    """The second meeting of a cycle."""
    cycle: tuple[tuple[int, Meeting, Meeting | None], ...] = ()
    """For each rank of a cycle: the meeting it has joined and the one others hold up for it."""
    candidates: tuple[int, ...] = ()
    unsure: bool = False
    """Whether the line-up itself leaves open that it was so: what follows is worth one grade less."""
    hangs: bool = True
    repeated: bool = True
    """The operation in question had been issued before: the loop is known."""
    tie: bool = False
    """No majority: the culprits are all that take part."""
    flagged: bool = False
    """The culprit left its own earlier path, besides being in the minority."""

    def graded(self, grade: Grade) -> Grade:
        """What a reading of this trouble is worth."""
        return grade.lowered() if self.unsure else grade


def calls_alone(trouble: Trouble, members: tuple[int, ...]) -> bool:
    """The mark of code under `if rank == 0`: one rank calls, and it is the first of its group or of the job."""
    if trouble.shape not in ("alone", "added") or len(trouble.ranks) != 1:
        return False
    return trouble.shape == "alone" or trouble.ranks[0] in (0, members[0])


def after_the_shift(troubles: Sequence[Trouble]) -> list[Trouble]:
    """The troubles, without a hang that an earlier one of the same group made: that one hangs instead.

    NCCL matches whatever comes next. Who has issued one operation more or less meets the others one place off from then
    on, nothing is said, and only the last of them is missed.
    """
    shifts = [t for t in troubles if not t.hangs and t.shape in _SHIFTS]
    for shift in sorted(shifts, key=lambda trouble: trouble.meeting.seq):
        later = [t for t in troubles if t.hangs and _in_group(t, shift) and t.meeting.seq > shift.meeting.seq]
        if later:
            return [replace(shift, hangs=True), *(t for t in troubles if t is not shift and t not in later)]
    return list(troubles)


def _in_group(one: Trouble, other: Trouble) -> bool:
    return one.meeting.group == other.meeting.group and not one.meeting.p2p and not other.meeting.p2p
