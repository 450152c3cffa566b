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
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, local_decision, on_partings, shown

CODE = "LINT122"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return local_decision(parting) and ".item()" in parting.test and "%" not in parting.test


def _say(parting: Parting) -> Said:
    message = (
        f"`{parting.test}` asks this rank's own tensor, and only some ranks call {shown(parting.concerned)}: "
        f"it depends on {because(parting.reasons)}."
    )
    return Said(message, ("All-reduce the tensor before taking its value, so that all ranks decide alike.",))
