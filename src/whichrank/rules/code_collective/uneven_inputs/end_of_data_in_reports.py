"""Ranks wait at the end of their data, according to a report.

## What it finds
A timeout together with a statement that the data set is iterable, batches are dynamic, or that it happens at the end
of an epoch.

## Why it happens
Iterable data sets, shards of different length and dynamic batching give ranks different numbers of batches; the first
that has no more leaves the others waiting.

## How it decides
Only where ranks timed out and no dump or progress line tells more.

## Example
`Timed out waiting 1800000ms for recv operation to complete`, with "custom IterableDataset with dynamic batching"

## Limits
It rests on the words of a person.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "COLL205"
CAUSE = "uneven-inputs"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
    alternatives=(
        ("conditional-collective", "a rank may have taken another path"),
        ("rank-stuck-in-data-loading", "a rank may be waiting for data"),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    waiting, told = known_messages.stands_still(case), known_messages.seen(case, "told-uneven")
    if not waiting or not told or case.has_dumps:
        return []
    message = "The job hangs, and its ranks can run out of data at different times."
    return [building.found(case, _CLAIM, [*(s.sign for s in told), *waiting], message, Grade.HINTS)]
