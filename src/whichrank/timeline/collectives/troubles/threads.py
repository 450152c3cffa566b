"""Whether a rank that seems to have left out an operation has another thread on its way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, innermost_user_frame, is_user_frame, main_thread
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.program import place_of
from whichrank.timeline.collectives.troubles.trouble import Shape, Trouble


def on_their_way(lineup: Lineup, troubles: Sequence[Trouble], stacks: Mapping[int, ProcessStack]) -> list[Trouble]:
    """The troubles; where another thread of the rank is on its way to the missing operation, nothing was left out: the
    threads of the ranks take two groups, or two operations of one group, in different orders."""
    return [replace(t, shape=order_shape(lineup, t)) if _coming(lineup, t, stacks) else t for t in troubles]


def order_shape(lineup: Lineup, trouble: Trouble) -> Shape:
    """What a trouble is where the rank does come to the missing operation: of one group, or of two."""
    same = trouble.acted is not None and lineup.group[trouble.acted] == lineup.group[trouble.due]
    return "swapped" if same and len(trouble.meeting.parties) > 1 else "crossed"


def _coming(lineup: Lineup, trouble: Trouble, stacks: Mapping[int, ProcessStack]) -> bool:
    if trouble.shape not in ("skipped", "added") or trouble.due is None or not trouble.ranks:
        return False
    if any(rank not in stacks for rank in trouble.ranks):
        return False
    due = lineup.call_of(trouble.due).stack
    issues = place_of(lineup.call_of(trouble.due))
    acted = place_of(lineup.call_of(trouble.acted)) if trouble.acted is not None else None
    return all(
        (issues is not None and (issues.file, issues.function) in _beside_main(stacks[rank]))
        or (acted is not None and _held_back(stacks[rank], (acted.file, acted.function), due))
        for rank in trouble.ranks
    )


def _held_back(stack: ProcessStack, acted: tuple[str, str], due: Sequence[Frame]) -> bool:
    """Whether another thread did what the rank is in, and the main thread stands where the missing one is called."""
    main = main_thread(stack)
    stands = innermost_user_frame(main) if main is not None else None
    if main is None or stands is None or acted not in _beside_main(stack):
        return False
    there = [frame for frame in due if is_user_frame(frame) and _function(frame) == _function(stands)]
    return acted not in map(_function, main.frames) and any(stands.line <= frame.line for frame in there)


def _beside_main(stack: ProcessStack) -> set[tuple[str, str]]:
    """The functions that the other threads are in."""
    main = main_thread(stack)
    return {_function(frame) for thread in stack.threads if thread is not main for frame in thread.frames}


def _function(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.function
