"""Waits that somebody ended by hand: ^C in a program that stands in the store or in its first collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.records.events.processes import Traceback

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_TYPE = "KeyboardInterrupt"


def waits(case: Case) -> list[Traceback]:
    """The tracebacks of such waits; a job that makes steps is mostly in a collective too when it is stopped."""
    found = [e for e in case.events(Traceback) if e.type.endswith(_TYPE) and e.frames]
    if not found:
        return []
    from whichrank.timeline.job_state.activity import of_frames  # many patterns: only where there is a stack

    doing = [(event, of_frames(tuple(reversed(event.frames)))) for event in found]
    return [e for e, activity in doing if activity.doing == "starting" or (activity.collective and not case.progress)]
