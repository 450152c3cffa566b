"""Which ranks failed first, by the structure of the failure and not by its words.

A rank failed first if it alone raised an exception of its own, ended before all others, did not come while all others
timed out, or is where the waiting of the collectives ends. What such a rank alone said earlier may be the reason, even
if training went on for a while after it: a lost data worker or a full disk shows later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.records.events.communication import PeerClosed
from whichrank.records.events.processes import Traceback
from whichrank.timeline.job_state import deaths, exceptions
from whichrank.timeline.job_state.statements import TIMED_OUT

if TYPE_CHECKING:
    from whichrank.timeline.case import Case


def first_to_fail(case: Case) -> frozenset[int]:
    """The ranks; empty where the evidence points at many, or at nobody."""
    ways = (_behind_the_waiting, _raised_alone, _ended_alone, _did_not_come, _alone_lost_nobody)
    for found in (way(case) for way in ways):
        if found and len(found) <= max(1, case.world // 4):
            return frozenset(found)
    return frozenset()


def _behind_the_waiting(case: Case) -> set[int]:
    return {rank for trouble in case.troubles if trouble.hangs for rank in trouble.ranks}


def _raised_alone(case: Case) -> set[int]:
    return {s.rank for s in exceptions.own_exceptions(case) if s.rank is not None}


def _alone_lost_nobody(case: Case) -> set[int]:
    """Those whose exception has a known cause, while all others only lost a peer."""
    raised = [event for event in case.events(Traceback) if not event.thread and not event.ignored]
    known = {e.rank for e in raised if e.rank is not None and exceptions.nature(e) in ("own", "known")}
    lost = {event.rank for event in case.events(PeerClosed) if event.rank is not None}
    return known - lost if len(lost) >= 2 else set()


def _ended_alone(case: Case) -> set[int]:
    first = deaths.first_to_end(case)
    return {first.sign.rank} if first is not None and first.sign.rank is not None else set(deaths.only_one_failed(case))


def _did_not_come(case: Case) -> set[int]:
    """Of a world that is known, those who did not time out while all others did."""
    waited = {event.rank for event in case.events(*TIMED_OUT) if event.rank is not None}
    missing = set(range(case.world)) - waited
    return missing if len(waited) >= 2 and len(missing) < len(waited) else set()
