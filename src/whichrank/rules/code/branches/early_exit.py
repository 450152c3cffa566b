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
from whichrank.records.code import Parting
from whichrank.rules.code_findings import (
    BY_RANK,
    Said,
    because,
    hidden,
    main_kind,
    makes_group,
    on_one_rank,
    on_partings,
    shown,
)

CODE = "LINT103"
CAUSE = "conditional-collective"


WORDS = {"return": "return", "continue": "skip the rest of the loop body", "exit": "exit"}


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    if parting.shape not in WORDS or makes_group(parting):
        return False
    return main_kind(parting) in BY_RANK or not hidden(parting)  # else it is a skipped step


def _say(parting: Parting) -> Said:
    message = (
        f"Some ranks {WORDS[parting.shape]} at `{parting.test}` and never reach {shown(parting.concerned)}: "
        f"it depends on {because(parting.reasons)}."
    )
    fix = (
        "Let every rank reach the collective: contribute zeros or an empty list instead of leaving.",
        "Or agree on leaving first, with an all-reduced flag.",
    )
    return Said(message, fix, "rank0-only-collective" if on_one_rank(parting) else CAUSE)
