"""torch's desync report says which ranks are behind.

## What it finds
The report that torch prints with a timeout where `TORCH_NCCL_DESYNC_DEBUG=1` is set (before 2.2
`NCCL_DESYNC_DEBUG`): ranks that never joined a collective, ranks that finished one and did not join the next, ranks
that joined one and did not finish it.

## Why it happens
A rank is held up elsewhere, took another path, or is gone; or all are there and the network or a GPU does not go on.

## How it decides
The report compares what every rank last noted in the store. Those that did not join are behind; if they are more than
those that did, the few went ahead. If all joined and nobody finished, nobody is to blame by it: the collective
stalls. The ranks are those of the group, and global only where the group is the job.

## Example
`- [3] finished collective #713, but didn't join collective #714 (count from 1)`

## Fix
Look at what these ranks do instead: their stacks first, then their logs.

## Limits
Ranks that can't reach the store any more are not in the report.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import DesyncReport
from whichrank.records.events.watchdog import WatchdogProgress, WatchdogTerminated, WatchdogTimeout
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import statements

CODE = "COLL134"
CAUSE = "collective-desync"

_AROUND: tuple[type[Event], ...] = (WatchdogTimeout, WatchdogProgress, WatchdogTerminated)
_BEHIND = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=("Find out what the ranks that are behind do instead: their stacks first, then their logs.",),
    alternatives=(
        ("conditional-collective", "they may have skipped the call"),
        ("rank-stuck-in-user-code", "they may be held up in host code"),
    ),
    next=(wording.STACK_OF_THE_MISSING,),
)
_AHEAD = Claim(
    CODE,
    "conditional-collective",
    category="hang",
    fix=("Look for the branch (by rank, by data) on which these ranks call a collective that the others don't.",),
    alternatives=((CAUSE, "the others may be held up, all at one place"),),
    next=(wording.STACK_OF_THE_MISSING,),
)
_STALLED = Claim(
    CODE,
    "collective-stalled",
    category="hang",
    fix=(
        "Look at the transport: link and port state, retransmissions, NCCL_DEBUG=INFO for the network that is used.",
        "Check that all hosts can reach each other on the interfaces that NCCL has chosen.",
    ),
    alternatives=(
        ("gpu-kernel-stuck", "a kernel before it may not end on one GPU"),
        ("process-group-order", "collectives of two groups may be queued in different orders"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = case.events(DesyncReport)
    never, skipped, open_ = (_listed(told, what) for what in ("never_joined", "not_joined", "not_finished"))
    timed_out = {e.group_rank for e in told if e.what == "timeout_at" and e.group_rank is not None}
    everyone = timed_out | set(never) | set(skipped) | set(open_)
    behind = tuple(sorted(set(never) | set(skipped)))
    if behind:
        return [_who_is_behind(case, told, behind, everyone)]
    if not open_ or not timed_out <= set(open_):
        return []
    message = f"By torch's desync report {wording.ranks_text(open_)} joined the same collective and nobody finished it."
    return [building.found(case, _STALLED, [statements.statement(case, e) for e in told], message, Grade.SUPPORTS)]


def _listed(told: list[DesyncReport], what: str) -> tuple[int, ...]:
    return tuple(sorted({rank for e in told if e.what == what for rank in e.ranks}))


def _who_is_behind(case: Case, told: list[DesyncReport], behind: tuple[int, ...], everyone: set[int]) -> Finding:
    size = max(case.world, len(everyone), max(everyone) + 1)
    # The report has no name of its group; the lines around it tell whose numbers they are.
    world = reported_mismatches.is_world(case, [*told, *case.events(*_AROUND)], size)
    inside = "" if world else " (numbers within the group)"
    signs = [statements.statement(case, event) for event in told]
    ahead = tuple(rank for rank in range(size) if rank not in behind)
    if ahead and len(behind) > len(ahead):
        message = (
            f"{wording.ranks_text(ahead).capitalize()}{inside} went ahead to a collective that "
            f"{wording.ranks_text(behind)} did not join, by torch's desync report."
        )
        return building.found(case, _AHEAD, signs, message, Grade.HINTS, ahead if world else ())
    message = (
        f"{wording.ranks_text(behind).capitalize()}{inside} did not join the collective in which the others wait, by "
        "torch's desync report."
    )
    return building.found(case, _BEHIND, signs, message, Grade.SUPPORTS, behind if world else ())
