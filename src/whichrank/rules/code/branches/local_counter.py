"""A boundary that every rank counts for itself.

What it finds: `if counter % n == 0:` around a collective, with a counter of local samples, tokens or kept
batches.

Why it happens: gradient accumulation, logging and checkpoints are tied to a counter. If ranks count what they
see (tokens, valid samples), they reach the boundary at different steps.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `tokens += batch.numel()` and `if tokens % 4096 < n: dist.all_reduce(grad)`.

Fix: count steps that all ranks take, or all-reduce the counter first.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, local_decision, on_partings, shown

CODE = "LINT121"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return local_decision(parting) and "%" in parting.test


def _say(parting: Parting) -> Said:
    message = (
        f"Ranks reach the boundary `{parting.test}` at different steps, and {shown(parting.concerned)} with it: "
        f"it depends on {because(parting.reasons)}."
    )
    return Said(message, ("Count what all ranks do alike (steps), or all-reduce the counter before testing it.",))
