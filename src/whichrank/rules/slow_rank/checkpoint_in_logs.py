"""A rank was saving or loading a checkpoint when the others timed out, by the output.

## What it finds
Lines about saving or loading a checkpoint as the last thing before a time-out.

## Why it happens
One rank writes a large file to slow storage while the others wait; or saving is a collective that not all ranks join.

## How it decides
The last thing that the output says before the time-out is of this kind. Dumps, stacks and counters tell more; where
there are any, this rule is silent.

## Example
`Saving model checkpoint to output/checkpoint-500`, then the time-out

## Fix
Save sharded or asynchronously (torch.distributed.checkpoint), to faster storage. See that saving a sharded model is
called on every rank. Or give the waiting group a longer timeout.

## Limits
A collective inside of the saving code that some ranks skip looks the same.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import busy_ranks
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SLOW202"
CAUSE = "rank-stuck-in-checkpoint"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Save sharded or asynchronously (torch.distributed.checkpoint), to faster storage.",
        "See that saving a sharded model is called on every rank.",
        "Or give the waiting group a longer timeout.",
    ),
    alternatives=(
        ("rank0-only-collective", 0.22, "saving a sharded model is a collective that every rank must join"),
        ("timeout-too-short", 0.12, "the work was going on"),
        ("storage-stall", 0.08, "the storage may not answer"),
    ),
    next=(
        NextStep(
            "py-spy dump --nonblocking --pid PID", "the stack of the late rank shows what it does", (CAUSE,), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return busy_ranks.judge(case, _CLAIM, "{who} was at a checkpoint when the others had waited too long: {what}.")
