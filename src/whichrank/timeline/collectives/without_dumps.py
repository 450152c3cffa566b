"""Ranks without a dump, where their watchdogs tell whether they waited with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.records.events.watchdog import DumpSignal, WatchdogProgress, WatchdogTimeout
from whichrank.timeline.collectives.stuck import DEFAULT, of_all_ranks, work_of

if TYPE_CHECKING:
    from whichrank.timeline.case import Case
    from whichrank.timeline.collectives.meetings import Meeting


def waited_in(case: Case, meeting: Meeting) -> set[int]:
    """Ranks that say that they timed out in this operation of the default group."""
    if case.lineup is None or case.lineup.groups[meeting.group].desc != DEFAULT or meeting.p2p:
        return set()
    told = [e for e in case.events(WatchdogTimeout, WatchdogProgress) if e.rank is not None]
    spoken = of_all_ranks(told).get(DEFAULT, ())
    return {e.rank for e in spoken if e.rank is not None and work_of(e) == meeting.seq}


def only_signalled(case: Case) -> set[int]:
    """Ranks that wrote their dump because another one had timed out, and never timed out themselves."""
    asked = {event.rank for event in case.events(DumpSignal) if not event.own and event.rank is not None}
    return asked - case.ranks_timed_out
