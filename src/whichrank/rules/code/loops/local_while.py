"""A while loop with collectives whose condition every rank answers for itself.

What it finds: `while` with a collective in its body (or its condition) and a condition on local data, the
clock, a queue or the rank.

Why it happens: ranks converge, run out of work or reach a time limit at different turns. The first to leave
lets the others wait.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `while error > 1e-3: error = step(); dist.all_reduce(x)`.

Fix: reduce the value that the condition tests in every turn, before it is tested.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, main_kind, on_partings, shown

CODE = "LINT106"
CAUSE = "uneven-inputs"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), lambda parting: parting.shape == "while", _say)


def _say(parting: Parting) -> Said:
    message = (
        f"Ranks may leave `while {parting.test}` at different turns, and each turn calls "
        f"{shown(parting.concerned)}: it depends on {because(parting.reasons)}."
    )
    fix = ("Test a value that all ranks share: all-reduce it (or a flag) in every turn.",)
    waits = main_kind(parting) == "time" or (main_kind(parting) == "rank" and parting.test != "True")
    return Said(message, fix, "conditional-collective" if waits else CAUSE)
