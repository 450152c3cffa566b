"""Ranks have different numbers of batches: some left the loop while others still synchronise.

## What it finds
Some ranks are already in the code behind the training loop (a final barrier, an evaluation, a save) while the
others wait in an operation inside the loop.

## Why it happens
The data is split unevenly: a sampler without padding, `drop_last=False`, files of different length, an
iterable dataset, batches filtered on some ranks.

## How it decides
The odd ranks issued an operation whose line stands, in the function that contains the loop, below every line
the loop's own operations came from, where the others issued the loop's next operation.

## Example
Ranks 0-6 wait in `all_reduce #801` at `train.py:52`; rank 7 is in `barrier #801` at `train.py:60`.

## Limits
A rank that ran out and then waits in no recorded operation looks like any other rank that stopped: then the
stack or the log of that rank tells.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL103"
CAUSE = "uneven-inputs"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if t.shape == "left-loop"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    acted = trouble.acted if trouble.acted is not None else next(iter(trouble.meeting.joined.values()))
    due = trouble.due if trouble.due is not None else acted
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang" if trouble.hangs else "corruption",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(*wording.place(lineup, acted, trouble.ranks[0]), *wording.place(lineup, due)),
        ),
        message=(
            f"{wording.culprits_text(case, trouble.ranks).capitalize()} left the loop and called "
            f"{wording.step(lineup, acted)}; {wording.wait_text(trouble.victims)} in {wording.step(lineup, due)}."
        ),
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims if trouble.hangs else (),
        onset_ns=wording.onset(case, trouble),
        alternatives=(Alternative("conditional-collective", "it may have left the loop early on a condition"),),
        fix=fix(CAUSE),
    )
