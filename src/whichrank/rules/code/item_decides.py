"""A local tensor's `.item()` decides about a collective.

What it finds: a branch on `.item()` of a tensor that was not reduced, with a collective in one arm only.

Why it happens: `.item()` makes a Python number of this rank's tensor; every rank gets another one.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if loss.item() < threshold: dist.barrier()`.

Fix: all-reduce the tensor before `.item()`.

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

CODE = "LINT122"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for parting in case.partings:
        if (
            parting.shape != "branch"
            or ".item()" not in parting.test
            or "%" in parting.test
            or main_kind(parting) in BY_RANK
        ):
            continue
        if makes_group(parting) or same_in_other_order(parting):
            continue
        message = (
            f"`{parting.test}` asks this rank's own tensor, and only some ranks call {shown(parting.concerned)}: "
            f"it depends on {because(parting.reasons)}."
        )
        fix = ("All-reduce the tensor before taking its value, so that all ranks decide alike.",)
        found.append(parted(CODE, CAUSE, parting, message, fix))
    return found
