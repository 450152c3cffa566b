"""A rank was evaluating when the others timed out, by the output.

## What it finds
Lines about an evaluation or generation as the last thing before a time-out.

## Why it happens
One rank evaluates alone while the others go on to the next collective, or ranks evaluate different amounts.

## How it decides
The last thing that the output says before the time-out is of this kind. Dumps, stacks and counters tell more; where
there are any, this rule is silent.

## Example
`***** Running Evaluation *****`, then the time-out

## Fix
Evaluate on all ranks with equal shares, or let the others wait with a longer timeout.

## Limits
An evaluation that runs on all ranks and hangs by itself looks the same.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import busy_ranks
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SLOW203"
CAUSE = "rank-stuck-in-evaluation"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=("Evaluate on all ranks with equal shares, or let the others wait with a longer timeout.",),
    alternatives=(
        ("uneven-inputs", 0.15, "ranks may have different numbers of samples"),
        ("timeout-too-short", 0.12, "the work was going on"),
        ("rank0-only-collective", 0.1, "the evaluation may hold a collective"),
    ),
    next=(
        NextStep(
            "py-spy dump --nonblocking --pid PID", "the stack of the late rank shows what it does", (CAUSE,), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return busy_ranks.judge(case, _CLAIM, "{who} was evaluating when the others had waited too long: {what}.")
