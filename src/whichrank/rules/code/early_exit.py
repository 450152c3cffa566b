"""A rank returns or skips past a collective.

What it finds: a `return`, `continue` or `sys.exit()` that depends on the rank or on local data, with a
collective behind it that the other ranks still reach.

Why it happens: guard clauses are written for one process: an empty batch, nothing to do on this rank, not the
main process. The other ranks go on to the collective and wait there.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if len(batch) == 0: continue` above `dist.all_reduce(count)`.

Fix: take part with an empty contribution instead of leaving, or let all ranks agree to leave.

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
    hidden,
    is_program,
    main_kind,
    makes_group,
    parted,
    shown,
)

CODE = "LINT103"
CAUSE = "conditional-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for parting in case.partings:
        if parting.shape not in {"return", "continue", "exit"} or makes_group(parting):
            continue
        if main_kind(parting) not in BY_RANK and hidden(parting):
            continue  # a skipped step
        cause = "rank0-only-collective" if parting.doers == 1 else CAUSE
        words = {"return": "return", "continue": "skip the rest of the loop body", "exit": "exit"}[parting.shape]
        message = (
            f"Some ranks {words} at `{parting.test}` and never reach {shown(parting.concerned)}: "
            f"it depends on {because(parting.reasons)}."
        )
        fix = (
            "Let every rank reach the collective: contribute zeros or an empty list instead of leaving.",
            "Or agree on leaving first, with an all-reduced flag.",
        )
        found.append(parted(CODE, cause, parting, message, fix))
    return found
