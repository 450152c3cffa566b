"""Calls that one line of the script makes, in an order that it chooses: a loop over groups, statistics or buffers."""

from __future__ import annotations

from collections.abc import Callable

from whichrank.records.dump import Call
from whichrank.records.stack import is_user_frame
from whichrank.timeline.collectives.lineup import Lineup

Place = tuple[str, str, int]
"""File, function and line."""


def of_two_names(one: Place, other: Place) -> bool:
    return one[:2] != other[:2]


def lines_of_both(
    lineup: Lineup, acted: int, due: int, are_two: Callable[[Place, Place], bool] = of_two_names
) -> list[Place]:
    """The lines through which both are called, where only then two functions part, and the rank that acted has done the
    other one about as often.

    `are_two` says whether two lines are of two functions: methods of two classes may have one name."""
    other = lineup.call_of(due)
    callers = common_lines(lineup.call_of(acted), other, are_two)
    return callers if callers and _issues(lineup, acted, other) else []


def common_lines(one: Call, other: Call, are_two: Callable[[Place, Place], bool] = of_two_names) -> list[Place]:
    """The lines through which both are called, where only then two functions part."""
    callers: list[Place] = []
    for own, their in zip(reversed(path(one)), reversed(path(other)), strict=False):
        if own != their:
            return callers if are_two(own, their) else []
        callers.append(own)
    return []


def path(call: Call) -> tuple[Place, ...]:
    """The training code's own frames of a call, the innermost first."""
    return tuple((frame.file, frame.function, frame.line) for frame in call.stack if is_user_frame(frame))


def _issues(lineup: Lineup, acted: int, other: Call) -> bool:
    """Whether the rank that acted has issued the other before, about as often as this one."""
    rows = lineup.call[slice(*lineup.first[int(lineup.rank[acted])])]
    calls = [lineup.calls[int(number)] for number in rows]
    theirs, own = (sum(call.stack == each.stack for call in calls) for each in (other, lineup.call_of(acted)))
    return theirs > 1 and abs(own - theirs) <= 2  # this one, and one that the recorder has dropped
