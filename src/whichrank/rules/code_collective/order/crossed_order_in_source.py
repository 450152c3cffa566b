"""The code beside the logs issues operations in crossed orders.

## What it finds
Branches of different ranks in which collectives and point-to-point operations stand in different orders, or that both
receive before they send.

## Why it happens
Each rank waits on its GPU for an operation that its partner has queued behind another one.

## How it decides
The piece of code lies among the evidence; two branches of one condition on the rank hold the operations in different
orders; and the job is said to hang.

## Example
`if rank == 0: reduce(…); isend(…)` and `elif …: irecv(…); reduce(…)`

## Fix
Issue the operations in the same order on all ranks, or put the point-to-point ones into batch_isend_irecv.

## Limits
Orders that differ by what happens at run time are not seen.
"""

from __future__ import annotations

from whichrank.model.findings import CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL203"
CAUSE = "p2p-deadlock"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Issue the operations in the same order on all ranks.",
        "Put sends and receives into batch_isend_irecv, or into a group of their own.",
    ),
    alternatives=(("collective-order", "the order of the collectives may be at fault alone"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.clues:
        return NotEvaluated("the training code beside the logs")
    waiting = known_messages.stands_still(case)
    crossed = [clue for clue in case.clues if clue.kind == "crossed"]
    if not crossed or not waiting or case.has_dumps:
        return []
    clue = crossed[0]
    message = (
        f"At {clue.file}:{clue.line} one branch does {', '.join(clue.calls)} and the other "
        f"{', '.join(clue.other_calls)}: each waits for what the other has queued behind."
    )
    found = building.found(case, _CLAIM, [Statement(clue.ref.quote, clue.ref), *waiting], message, Grade.SUPPORTS)
    return [building.about(found, Subject(code=(CodePlace(clue.file, clue.line),)))]
