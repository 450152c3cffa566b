"""A collective that depends on a value which every rank has for itself.

What it finds: a collective in one arm of a branch whose condition comes from this rank's data, loss, clock,
files, memory or random numbers.

Why it happens: a check looks right on one rank (`if loss is finite`, `if the file is there`, `if ten minutes
are over`), and the ranks don't agree on its answer. Those that enter wait for those that don't.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if loss.item() > limit: dist.all_reduce(stats)`.

Fix: make the decision common first: all-reduce a flag (MAX or MIN), or let rank 0 decide and broadcast.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, local_decision, on_partings, shown

CODE = "LINT102"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return local_decision(parting) and "%" not in parting.test and ".item()" not in parting.test


def _say(parting: Parting) -> Said:
    message = (
        f"Ranks may disagree on `{parting.test}`, and only some of them call {shown(parting.concerned)}: "
        f"it depends on {because(parting.reasons)}."
    )
    fix = (
        "Agree on the decision before acting on it: all-reduce a flag, or broadcast the decision of one rank.",
        "Or move the collective out of the branch.",
    )
    return Said(message, fix)
