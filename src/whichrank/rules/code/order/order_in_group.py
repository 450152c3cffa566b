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
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, main_kind, on_partings, same_in_other_order, shown

CODE = "LINT112"
CAUSE = "collective-order"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), lambda parting: _set_order(parting) or _crossed(parting), _say)


def _set_order(parting: Parting) -> bool:
    return parting.shape == "loop" and main_kind(parting) == "order"


def _crossed(parting: Parting) -> bool:
    groups = {operation.group for operation in (*parting.here, *parting.there)}
    return parting.shape == "branch" and same_in_other_order(parting) and len(groups) == 1


def _say(parting: Parting) -> Said:
    message = (
        f"{shown(parting.concerned)} is called in another order on every rank: {because(parting.reasons)}."
        if _set_order(parting)
        else f"Ranks call the same operations in another order at `{parting.test}`, by {because(parting.reasons)}."
    )
    return Said(
        message, ("Use one order on all ranks: sorted(…), or the same sequence of calls outside of the branch.",)
    )
