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
from whichrank.rules.code_words import (
    BY_RANK,
    NO_PROGRAM,
    because,
    is_program,
    main_kind,
    makes_group,
    parted,
    same_in_other_order,
    shown,
)

CODE = "LINT121"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for parting in case.partings:
        if parting.shape != "branch" or "%" not in parting.test or main_kind(parting) in BY_RANK:
            continue
        if makes_group(parting) or same_in_other_order(parting):
            continue
        message = (
            f"Ranks reach the boundary `{parting.test}` at different steps, and {shown(parting.concerned)} with it: "
            f"it depends on {because(parting.reasons)}."
        )
        fix = ("Count what all ranks do alike (steps), or all-reduce the counter before testing it.",)
        found.append(parted(CODE, CAUSE, parting, message, fix))
    return found
