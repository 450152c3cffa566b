"""The same collectives of one group in different orders.

What it finds: two arms of a branch that make the same calls in another order, and loops over a set.

Why it happens: operations of a group are matched by their order, not by their names. Another order means that
a broadcast meets an all-reduce: a hang, or wrong data. The order of a set of strings differs between
processes (PYTHONHASHSEED).

How it decides: the operations of both arms are compared in order; loops over a `set` with a collective in the
body are found.

Example: `for name in set(names): dist.all_reduce(stats[name])`.

Fix: one order on all ranks: sort, or take the calls out of the branch.

Limits: the order of dictionaries that ranks fill differently is not followed.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, because, is_program, parted, same_in_other_order, shown

CODE = "LINT112"
CAUSE = "collective-order"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for parting in case.partings:
        set_order = parting.shape == "loop" and parting.reasons[0].kind == "order"
        groups = {operation.group for operation in (*parting.here, *parting.there)}
        crossed = parting.shape == "branch" and same_in_other_order(parting) and len(groups) == 1
        if not set_order and not crossed:
            continue
        message = (
            f"{shown(parting.concerned)} is called in another order on every rank: {because(parting.reasons)}."
            if set_order
            else f"Ranks call the same operations in another order at `{parting.test}`, by {because(parting.reasons)}."
        )
        fix = ("Use one order on all ranks: sorted(…), or the same sequence of calls outside of the branch.",)
        found.append(parted(CODE, CAUSE, parting, message, fix))
    return found
