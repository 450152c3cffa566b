"""A monitored barrier names the ranks that did not join.

## What it finds
`monitored_barrier` (called by the program, or by `TORCH_DISTRIBUTED_DEBUG=DETAIL` before every collective) that
timed out.

## Why it happens
A rank skipped the call, is held up elsewhere, or is gone.

## How it decides
Rank 0 of the group lists who failed to pass; the other ranks only say that they did. If nobody lists and the others
wait for rank 0, rank 0 is the one that is missing. Ranks within a group are global only where the group is the job.

## Example
`[Rank 0]: Rank 2 failed to pass monitoredBarrier in 30000 ms`

## Fix
Look at what that rank does instead: its stack, then its log.

## Limits
Without `wait_all_ranks=True` only the first missing rank is listed.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.collectives import MonitoredBarrierFailed
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import deaths, exceptions, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL124"
CAUSE = "collective-desync"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=("Find out what the missing rank does instead of reaching the barrier: its stack first, then its log.",),
    alternatives=(
        ("conditional-collective", "it may have skipped the call"),
        ("rank-stuck-in-user-code", "it may be held up in host code"),
    ),
    next=(wording.STACK_OF_THE_MISSING,),
)

_GONE = Claim(
    CODE,
    "rank-exception",
    fix=("Read the log of rank 0: it raised, or it names who did not reach the barrier.",),
    alternatives=((CAUSE, "rank 0 leaves too when another rank is missing: its log says who"),),
)
_LEFT = "Rank 0 ended while the others waited for it in a monitored barrier; its own words are not at hand."


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.of_kind(case, MonitoredBarrierFailed)
    if not signs:
        return []
    told = [s.event for s in signs if isinstance(s.event, MonitoredBarrierFailed)]
    if (gone := _rank_0_gone(case, told)) is not None:
        return [building.found(case, _GONE, [*signs, gone], _LEFT, Grade.HINTS, (0,))]
    listed = sorted({rank for e in told if e.what == "missing" for rank in e.ranks})
    missing = tuple(listed) if listed else (0,)
    members = {e.group_rank for e in told if e.group_rank is not None} | set(missing)
    ranks = missing if reported_mismatches.is_world(case, told, len(members)) else ()
    inside = "" if ranks else " (number within the group)"
    message = (
        f"{wording.ranks_text(missing).capitalize()}{inside} never reached a monitored barrier that the others reached."
    )
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, ranks)]


def _rank_0_gone(case: Case, told: list[MonitoredBarrierFailed]) -> Statement | None:
    """The end of rank 0, where the others only say that they lost it."""
    if any(event.what == "missing" for event in told) or exceptions.own_exceptions(case):
        return None
    ended = [d.sign for d in deaths.deaths(case) if not d.by_launcher and d.signal != deaths.TERMINATE]
    return next((s for s in ended if s.rank == 0 or (s.rank is None and s.local_rank == 0)), None)
