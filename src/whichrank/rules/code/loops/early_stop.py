"""A loop that some ranks leave early.

What it finds: a `break` out of a loop with collectives that depends on a value which is not synchronised: a
local validation loss, the clock, a local counter.

Why it happens: early stopping, time limits and convergence tests are decided by each rank for itself. One
leaves, the others start the next step and wait for it.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if val_loss > best: break` in a loop over epochs with DistributedDataParallel.

Fix: all-reduce the value (or the flag) before comparing it, or broadcast the decision of rank 0.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, on_partings, shown

CODE = "LINT104"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), lambda parting: parting.shape == "break", _say)


def _say(parting: Parting) -> Said:
    message = (
        f"Some ranks leave the loop at `{parting.test}` while the others go on to {shown(parting.concerned)}: "
        f"it depends on {because(parting.reasons)}."
    )
    fix = "Make the decision common before acting on it: all-reduce the value or a stop flag, or broadcast rank 0's."
    return Said(message, (fix,))
