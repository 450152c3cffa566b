"""The code beside the logs calls a collective only where this rank's own data is so.

## What it finds
A collective under a condition on a value, a length or a missing input: things that differ from rank to rank.

## Why it happens
Each rank has its own batch. Where a branch depends on it (a loss that is not finite, a batch without images), some
ranks reach the collective and others don't.

## How it decides
By the training code that lies beside the logs, where ranks timed out or somebody says that the job hangs. Conditions
on what all ranks share (steps, epochs, arguments, the world size) don't count.

## Example
    if loss.item() > threshold:
        dist.all_reduce(flag)

## Fix
Call the collective on every rank, with a zero where a rank has nothing to say.

## Limits
The condition may be equal on all ranks after all: what a reduction made equal is not seen in a fragment.
"""

from __future__ import annotations

from whichrank.model.findings import CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL206"
CAUSE = "conditional-collective"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=("Call it on every rank, outside of the condition: pass a zero (or an empty share) where a rank has nothing.",),
    alternatives=(("collective-desync", "the condition may be equal on all ranks"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.clues:
        return NotEvaluated("the training code beside the logs")
    waiting = known_messages.stands_still(case)
    clue = next((clue for clue in case.clues if clue.kind == "by_data"), None)
    if clue is None or not waiting or case.has_dumps:
        return []
    message = (
        f"{clue.calls[0]} at {clue.file}:{clue.line} runs only where {clue.guard}, which may differ between ranks, "
        "and ranks wait in a collective."
    )
    found = building.found(case, _CLAIM, [Statement(clue.ref.quote, clue.ref), *waiting], message, Grade.HINTS)
    return [building.about(found, Subject(code=(CodePlace(clue.file, clue.line),)))]
