"""What the members of an all_to_all send, and what they expect: together it must be the same."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.signature import bare_name, is_uneven, numels


class Imbalance(Struct, frozen=True):
    """Elements that all members send and expect together, and the one whose own number would even it out."""

    sent: int
    expected: int
    odd: int | None


def imbalance(lineup: Lineup, meeting: Meeting) -> Imbalance | None:
    """Of an all_to_all that all members have joined, where more is sent than expected, or less."""
    calls = {rank: lineup.call_of(row) for rank, row in meeting.joined.items()}
    if meeting.absent or meeting.unseen or meeting.open_ended:
        return None
    if not all(is_uneven(bare_name(call.op)) and call.input_sizes and call.output_sizes for call in calls.values()):
        return None
    sent = {rank: sum(numels(call.input_sizes)) for rank, call in calls.items()}
    expected = {rank: sum(numels(call.output_sizes)) for rank, call in calls.items()}
    lacking = sum(expected.values()) - sum(sent.values())
    if not lacking:
        return None
    odd = _like_the_others(sent, lacking)
    odd = odd if odd is not None else _like_the_others(expected, -lacking)
    return Imbalance(sum(sent.values()), sum(expected.values()), odd)


def _like_the_others(numbers: Mapping[int, int], change: int) -> int | None:
    """The rank that, with this change, would bring what all others bring alike; two others at least."""
    fitting = [r for r, n in numbers.items() if {m for other, m in numbers.items() if other != r} == {n + change}]
    return fitting[0] if len(fitting) == 1 and len(numbers) > 2 else None
