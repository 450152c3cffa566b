"""Whether a rank that seems to have left out an operation has a second thread on its way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from whichrank.records.stack import ProcessStack, main_thread
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.program import place_of
from whichrank.timeline.collectives.troubles.trouble import Trouble


def on_their_way(lineup: Lineup, troubles: Sequence[Trouble], stacks: Mapping[int, ProcessStack]) -> list[Trouble]:
    """The troubles; where another thread of the rank stands in the function that issues the missing operation, nothing
    was left out: the threads of the ranks take two groups in different orders."""
    return [replace(t, shape="crossed") if _coming(lineup, t, stacks) else t for t in troubles]


def _coming(lineup: Lineup, trouble: Trouble, stacks: Mapping[int, ProcessStack]) -> bool:
    if trouble.shape not in ("skipped", "added") or trouble.due is None or not trouble.ranks:
        return False
    place = place_of(lineup.call_of(trouble.due))
    return place is not None and all(
        rank in stacks
        and any(
            (frame.file, frame.function) == (place.file, place.function)
            for thread in stacks[rank].threads
            if thread is not main_thread(stacks[rank])
            for frame in thread.frames
        )
        for rank in trouble.ranks
    )
