"""The code beside the logs calls a collective on one rank only.

## What it finds
A collective, or a call that hides one (save_state of a sharded model, a barrier), under a condition that only the
first rank meets.

## Why it happens
Saving and logging are put under `if rank == 0`, and with sharded models (FSDP, ZeRO) saving gathers from all ranks.

## How it decides
The piece of code lies among the evidence and shows the call under the condition, with no counterpart in the other
branch; and the job waits in a collective.

## Example
`if accelerator.is_main_process: … accelerator.save_state(path)`

## Limits
Code that only lies there need not be the code that hung: nothing is said unless the job waits.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL202"
CAUSE = "rank0-only-collective"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    alternatives=(
        ("rank-stuck-in-checkpoint", "the call may just be slow"),
        ("conditional-collective", "ranks may part ways elsewhere"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.clues:
        return NotEvaluated("the training code beside the logs")
    waiting = known_messages.stands_still(case)
    guarded = [clue for clue in case.clues if clue.kind == "guarded"]
    if not guarded or not waiting or case.has_dumps:
        return []
    clue = guarded[0]
    message = (
        f"{clue.calls[0]} at {clue.file}:{clue.line} runs only where {clue.guard}, and the ranks wait in a collective."
    )
    signs = [Statement(clue.ref.quote, clue.ref), *waiting]
    place = (CodePlace(clue.file, clue.line),)
    if _rank0_is_odd(case):
        found = building.found(case, _CLAIM, signs, message, Grade.PROVES, (0,))
        return [replace(found, subject=Subject(ranks=(0,), code=place))]
    # The first process of every host is no single rank.
    ranks = (0,) if len(guarded) == 1 and "local" not in clue.guard.lower() else ()
    found = building.found(case, _CLAIM, signs, message, Grade.SUPPORTS if len(guarded) == 1 else Grade.HINTS, ranks)
    return [building.about(found, Subject(ranks=ranks, code=place))]


def _rank0_is_odd(case: Case) -> bool:
    """Whether the structure of the failure points at rank 0, as the code does."""
    told = reported_mismatches.mismatches(case)
    return set(case.first_to_fail) == {0} or any(map(reported_mismatches.is_rank0_apart, told))
