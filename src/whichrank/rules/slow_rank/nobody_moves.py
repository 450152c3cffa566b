"""No rank moves, and none is in a collective.

## What it finds
A job in which every rank that lives has stood at one place of its own code: nobody waits in a collective, so no record
of collectives shows who is missing.

## Why it happens
Ranks also meet where torch.distributed does not count: a key of the store that one of them never sets, a file or a lock
that one of them was to write or remove, a queue, a socket, a child process. Or all read from storage that is gone.

## How it decides
Under `whichrank run` each rank says for how long its main thread has been at one instruction; here it was long for all.
Where all are silent, something holds their interpreters: their stacks say where they are.
Where nearly all stand at one place and few elsewhere, the few are suspected. Otherwise nobody is singled out.

## Example
Ranks 0 to 3 have stood at `store.py:10 in collect` for 90 seconds.

## Fix
Look at that line on every rank: what does it wait for, and which rank provides it?
Give such a wait a timeout that names what is missing.

## Limits
What a rank left out before it came there is not recorded.
"""

from __future__ import annotations

from collections import Counter

from whichrank.facts import rule_rows
from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.collectives import StoodStill
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.point_to_point import all_in_messages
from whichrank.timeline.job_state.activity import Doing

CODE = "SLOW109"
CAUSE = "rank-stuck-in-user-code"

_FEW = 4
"""One of so many ranks may stand elsewhere."""
_OTHERS = (
    Alternative("conditional-collective", "one of them may have left out what the others wait for: a key, a file"),
    Alternative("stale-lock-or-store", "a lock or a key of an earlier run may be what they wait for"),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    stood = {event.rank: event for event in case.events(StoodStill) if event.rank is not None}
    if not stood:
        return NotEvaluated("how long the ranks have stood (whichrank run)")
    if not case.all_stand or case.troubles or len(stood) < 2 or all_in_messages(case):
        return []
    at = {rank: event.place or _by_stack(case, rank) for rank, event in stood.items()}
    places = Counter(at.values())
    usual = places.most_common(1)[0][0]
    elsewhere = tuple(sorted(rank for rank, place in at.items() if place != usual))
    few = bool(elsewhere) and len(elsewhere) * _FEW <= len(stood)
    everyone = tuple(sorted(stood))
    first = elsewhere[0] if few else everyone[0]
    usual = usual.rpartition("/")[2]
    where = usual if len(places) == 1 else f"{usual} and at {len(places) - 1} other places"
    told = f"; {wording.ranks_text(elsewhere)} at {at[first].rpartition('/')[2]}" if few else ""
    seconds = min(event.seconds for event in stood.values())
    activity = case.activities.get(first)
    cause = _cause_of(activity.doing) if activity is not None else CAUSE
    code = (activity.place,) if activity is not None and activity.place is not None else ()
    return [
        Finding(
            code=CODE,
            cause=cause,
            category="hang",
            severity="error",
            grade=Grade.HINTS if few else Grade.SUPPORTS,
            kind="stacks",
            subject=Subject(ranks=elsewhere, code=code) if few else Subject(candidates=everyone, code=code),
            message=(
                f"No rank moves and none is in a collective: {wording.ranks_text(everyone)} have stood for "
                f"{seconds:.0f} s at {where}{told}."
            ),
            evidence=tuple(dict.fromkeys(event.ref for event in [stood[first], *stood.values()]))[:4],
            fix=("Look at that line on every rank: what does it wait for, and which rank provides it?", *fix(cause)),
            alternatives=_OTHERS,
            next=(NextStep("whichrank stacks", "a second look shows whether somebody moves", (cause,), "none"),),
        )
    ]


def _by_stack(case: Case, rank: int) -> str:
    """Where a rank is that can't say so itself, because its interpreter does not run."""
    activity = case.activities.get(rank)
    return str(activity.place) if activity is not None and activity.place is not None else "an unknown place"


def _cause_of(doing: Doing) -> str:
    """As the rules on single stacks have it."""
    if doing == "storage":
        return "storage-stall"
    return next((row.cause for row in rule_rows.rows().values() if row.about == doing), CAUSE)
