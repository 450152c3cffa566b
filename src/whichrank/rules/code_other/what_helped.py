"""Somebody changed something, and the failure went away.

## What it finds
The cause that a change points at which helped: "works with NCCL_P2P_DISABLE=1" speaks for copies between GPUs,
"--ipc=host fixed it" for a small /dev/shm.

## Why it happens
Who reports a failure has mostly tried things. What helped is the best clue of a report; what did not help excludes
causes.

## How it decides
By the table of changes (`facts/interventions.csv`): each names the causes that it speaks for when it helped, and those
that are out when it did not. Of several causes those count that fit what was seen (a hang, a crash, wrong results), and
that no other change refutes. A change that is reported both ways counts as neither.

Two runs in the evidence are a trial too, where one failed and one change alone lies between them: a setting that NCCL
prints, its version, or the number of hosts.

## Example
    Both GPUs sit at 100 % and nothing happens. NCCL_IB_DISABLE=1: no difference. With NCCL_P2P_DISABLE=1 it trains.

## Fix
That of the cause, as `whichrank explain CAUSE` tells it; the change itself as a work-around.

## Limits
Neither a report nor a pair of runs proves: another thing may have changed besides. Nobody is accused.
"""

from __future__ import annotations

from typing import cast

from whichrank.facts.interventions import SMALLER, interventions
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Alternative, Category, Finding, Grade, NotEvaluated, Subject
from whichrank.records.trial import Trial
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import trials
from whichrank.timeline.job_state.outcome import observed

CODE = "CODE205"
CAUSE = "unknown"
_OF_ANY_KIND = ("nccl-bug",)
"""A defect may show as a hang, a crash or wrong results."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not trials.tried(case):
        return NotEvaluated("a report of what was tried, or two runs")
    told: dict[str, list[Trial]] = {}
    order: dict[str, int] = {}
    for trial in trials.effective(case):
        fitting = _fitting(case, trial)
        for place, cause in enumerate(fitting):
            told.setdefault(cause, []).append(trial)
            order[cause] = min(order.get(cause, 9), place)
    if not told:
        return []
    named = {c for t in trials.tried(case) if t.outcome == "unknown" for c in interventions()[t.change].helped}
    best = min(told, key=lambda c: (-len({t.change for t in told[c]}), c not in named, order[c], c))
    return [_finding(case, best, told)]


def _fitting(case: Case, trial: Trial) -> list[str]:
    """The causes that the change speaks for: not refuted, and of what was seen where one of them is."""
    standing = [c for c in interventions()[trial.change].helped if trials.ruled_out(case, c) is None]
    seen = observed(case)
    defects = [c for c in standing if c in _OF_ANY_KIND]
    of_it = defects or [c for c in standing if _alike(causes()[c].usual_category, seen)]
    return of_it if trial.change in SMALLER else of_it or standing


def _alike(usual: str, seen: str | None) -> bool:
    """Whether a cause that is usually seen so may be behind this: the same fault hangs one job and ends another."""
    return usual == seen or {usual, seen} == {"hang", "crash"}


def _finding(case: Case, best: str, told: dict[str, list[Trial]]) -> Finding:
    changes = list(dict.fromkeys(trial.change for trial in told[best]))
    as_often = sum(len({t.change for t in tried}) >= len(changes) for tried in told.values())
    # One cause alone fits what helped, or one alone fits two changes that work in different ways.
    alone = len(told) == 1 or (len(changes) > 1 and as_often == 1)
    category = cast(Category, observed(case) or causes()[best].usual_category)
    return Finding(
        code=CODE,
        cause=best,
        category=category,
        severity="warning" if category in ("slow", "config") else "error",
        grade=Grade.SUPPORTS if alone else Grade.HINTS,
        kind="messages" if any(trial.seen for trial in told[best]) else "reports",
        subject=Subject(),
        message=f"It went away with {' and with '.join(changes[:2])}: {causes()[best].meaning.rstrip('.')}.",
        evidence=tuple(dict.fromkeys(trial.ref for trial in told[best]))[:4],
        fix=(f"whichrank explain {best}", f"Until then keep what helped: {changes[0]}."),
        alternatives=tuple(Alternative(cause, "what helped fits it too") for cause in sorted(told) if cause != best),
    )
