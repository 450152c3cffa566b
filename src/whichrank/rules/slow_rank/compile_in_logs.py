"""A rank was compiling when the others timed out, by the output.

## What it finds
Lines of torch.compile, of kernel tuning, of extension builds or of graph capture as the last thing before a time-out.

## Why it happens
One rank compiles another shape, or without a warm cache, while the others wait.

## How it decides
The last thing that the output says before the time-out is of this kind. Dumps, stacks and counters tell more; where
there are any, this rule is silent.

## Example
`AUTOTUNE mm(4096x4096, 4096x4096)`, then the time-out

## Fix
Warm up all shapes on all ranks before the first collective; share the compile cache. Or give the first steps a longer
timeout.

## Limits
Compiling on all ranks alike does no harm.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import busy_ranks
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SLOW204"
CAUSE = "rank-stuck-in-compile"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Warm up all shapes on all ranks before the first collective; share the compile cache.",
        "Or give the first steps a longer timeout.",
    ),
    alternatives=(
        ("timeout-too-short", 0.15, "the work was going on"),
        ("stale-lock-or-store", 0.1, "a lock of an interrupted build blocks for ever"),
    ),
    next=(
        NextStep(
            "py-spy dump --nonblocking --pid PID", "the stack of the late rank shows what it does", (CAUSE,), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return busy_ranks.judge(case, _CLAIM, "{who} was compiling when the others had waited too long: {what}.")
