"""A rank stands behind the loop that the others are in, and not in a collective: it ran out of data first.

## What it finds
A rank that never came to the next operation of a loop because it has left the loop, and that waits for the others in
its own way: it polls a store, sleeps, reads a file.

## Why it happens
The data is split unevenly, or batches are filtered on some ranks. What the rank does after its loop looks like a
rank that is stuck in host code.

## How it decides
The dumps say that the rank did not come to the operation that the others wait in. Its stack stands below a loop, in the
function that contains the loop or that called it, and the others called that operation inside the loop. The loop has
no `break`, so only its end leads out of it.

## Example
Ranks 0, 1 and 3 wait in `all_reduce #610` at `train.py:102`; rank 2 polls the store at `train.py:90`, called behind
the loop.

## Fix
Stop all ranks after the same number of steps: pad or drop the last batches, use `Join`, or agree on the end of the
data with a reduction in every round.

## Limits
Needs the source of the loop, the dumps and the stacks of both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.dump import Frame
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import Held, held_up, stack_ref
from whichrank.timeline.collectives.troubles import loops
from whichrank.timeline.collectives.troubles.trouble import NOT_THERE

CODE = "COLL149"
CAUSE = "uneven-inputs"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.stacks or case.lineup is None:
        return NotEvaluated("flight-recorder dumps and stacks of the ranks")
    found = [held for held in held_up(case) if held.by == "dumps" and _has_left(case, held)]
    return [_finding(case, found)] if found else []


def _has_left(case: Case, held: Held) -> bool:
    mine, waited_for = case.stands(held.rank), _waited_for(case)
    behind = loops.left(mine, waited_for, case.outline.loops) if mine and waited_for else []
    return bool(behind) and not any(loop.exits for loop in behind)


def _waited_for(case: Case) -> Sequence[Frame]:
    """Where the others called the operation that this rank did not come to."""
    missing = next((trouble.meeting for trouble in case.troubles if trouble.shape in NOT_THERE), None)
    return case.lineup.call_of(next(iter(missing.joined.values()))).stack if case.lineup and missing else ()


def _finding(case: Case, found: list[Held]) -> Finding:
    first, ranks = found[0], tuple(held.rank for held in found)
    waiting = tuple(rank for rank in first.waiting if rank not in ranks)
    place = first.activity.place
    at = f" and is at {place}" if place else ""
    who = wording.culprits_text(case, ranks)
    shown = [rank for rank in (*ranks[:2], *waiting) if rank in case.stacks]
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.SUPPORTS,
        kind="stacks",
        subject=Subject(
            ranks=ranks,
            code=(CodePlace(place.file, place.line, place.function, first.rank),) if place else (),
        ),
        message=f"{who[0].upper()}{who[1:]} left the loop{at}; {wording.wait_text(waiting)} inside it.",
        evidence=tuple(stack_ref(case, rank) for rank in shown[:3]),
        victims=waiting,
        onset_ns=wording.onset(case, case.troubles[0]) if case.troubles else None,
        alternatives=(Alternative("conditional-collective", "it may have left the loop early on a condition"),),
        fix=fix(CAUSE),
    )
