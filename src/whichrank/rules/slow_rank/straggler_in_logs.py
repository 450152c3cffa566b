"""A rank's own log lines come later, or report longer steps, than the others'.

## What it finds
Without dumps: one rank whose time per step, as it prints it, is steadily longer than the rest's.

## Why it happens
As for any straggler: a slower GPU, a busy CPU, a slow data source, more work on one rank.

## How it decides
The median time per step that each rank prints is compared; one rank must be at least a fifth slower than the typical
rank, over many steps, and stand clear of the others. Times of day are not compared: clocks of hosts differ.

## Example
Rank 5 prints 0.61 s per step, the others 0.42 s.

## Limits
In a synchronised loop all ranks print the same time per step, whoever is slow: then only dumps with timing tell.
"""

from __future__ import annotations

import numpy as np

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "SLOW108"
CAUSE = "straggler"
STEPS, RANKS, SLOWER = 16, 3, 1.2


def judge(case: Case) -> list[Finding] | NotEvaluated:
    medians, refs = _medians(case)
    if len(medians) < RANKS:
        return NotEvaluated("times per step that at least three ranks print")
    ordered = sorted(medians, key=lambda rank: -medians[rank])
    slowest, rest = ordered[0], ordered[1:]
    typical = float(np.median([medians[rank] for rank in rest]))
    clear = medians[slowest] - typical > 3 * (medians[rest[0]] - typical)
    if typical <= 0 or medians[slowest] < SLOWER * typical or not clear or case.late is not None:
        return []
    share = 1 - typical / medians[slowest]
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="slow",
            severity="warning",
            grade=Grade.SUPPORTS,
            kind="timing",
            subject=Subject(ranks=(slowest,)),
            message=(
                f"{wording.culprits_text(case, (slowest,)).capitalize()} needs {medians[slowest]:.3g} s per "
                f"step, the others {typical:.3g} s ({share:.0%} less)."
            ),
            evidence=(refs[slowest], refs[rest[-1]]),
            victims=tuple(sorted(rest)),
            alternatives=(
                Alternative("input-bound", "its data may come slower"),
                Alternative("cpu-starved", "it may lack CPU"),
            ),
            fix=fix(CAUSE),
        )
    ]


def _medians(case: Case) -> tuple[dict[int, float], dict[int, Ref]]:
    """Rank -> median time per step that it prints, over enough steps; and a line that shows it."""
    medians: dict[int, float] = {}
    refs: dict[int, Ref] = {}
    for progress in case.progress:
        for rank in sorted({int(r) for r in progress.rank if r >= 0}):
            mine = (progress.rank == rank) & np.isfinite(progress.seconds_per_step)
            if mine.sum() >= STEPS:
                medians[rank] = float(np.median(progress.seconds_per_step[mine]))
                line = int(progress.line[mine][-1])
                refs[rank] = Ref(progress.source, f"line {line}", f"median {medians[rank]:.3g} s per step", rank)
    return medians, refs
