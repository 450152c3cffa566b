"""Ranks wait at the end of their data, according to a report or a progress bar.

## What it finds
A timeout together with a statement that the data set is iterable, batches are dynamic, or that it happens at the end
of an epoch.

## Why it happens
Iterable data sets, shards of different length and dynamic batching give ranks different numbers of batches; the first
that has no more leaves the others waiting.

## How it decides
Only where ranks timed out and no dump or progress line tells more. It is surer where some ranks timed out in a small
operation, such as the sum of a metric, while the others reduce whole gradients: they have left the loop. There a bar
that stands at the end of its loop is enough, or a file of the data that was cut short and skipped. It is proven where
the ranks that are in another operation than the rest are those that said that they had no data left.

## Example
`Timed out waiting 1800000ms for recv operation to complete`, with "custom IterableDataset with dynamic batching"

## Limits
Without the timeouts of both sides it rests on the words of a person.
"""

from __future__ import annotations

import numpy as np

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
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
_LATE, _SHORT = 0.99, 50
"""The share of a loop that is its end, and steps of a loop too short to tell."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    waiting, told = known_messages.stands_still(case), known_messages.seen(case, "told-uneven")
    mismatches = reported_mismatches.mismatches(case)
    cut = known_messages.seen(case, "data-cut-short")
    ended = [s.sign for s in known_messages.seen(case, "says-end-of-data") or cut]
    if (odd := next((m for m in mismatches if m.ranks and m.ranks == statements.ranks_of(ended)), None)) is not None:
        who = wording.ranks_text(odd.ranks).capitalize()
        why = "skipped data that was cut short" if cut else "had no data left"
        message = f"{who} {why} and went on to another operation: {reported_mismatches.told(case, odd)}."
        return [building.found(case, _CLAIM, [*ended, *odd.signs], message, Grade.PROVES, odd.ranks)]
    apart = next((m for m in mismatches if m.least), None)
    told_apart = told or cut
    if apart is not None and (told_apart or _at_the_end(case)):
        who = wording.ranks_text(apart.least).capitalize()
        message = f"{who} left the loop while the others go on: {reported_mismatches.told(case, apart)}."
        return [
            building.found(
                case, _CLAIM, [*apart.signs, *(s.sign for s in told_apart)], message, Grade.SUPPORTS, apart.least
            )
        ]
    if not waiting or not told or case.has_dumps:
        return []
    message = "The job hangs, and its ranks can run out of data at different times."
    return [building.found(case, _CLAIM, [*(s.sign for s in told), *waiting], message, Grade.HINTS)]


def _at_the_end(case: Case) -> bool:
    """Whether the last count of an output is one of the last of its loop."""
    for progress in case.progress:
        rows = np.flatnonzero(progress.total > _SHORT)
        if len(rows) and progress.step[rows[-1]] >= _LATE * progress.total[rows[-1]]:
            return True
    return False
