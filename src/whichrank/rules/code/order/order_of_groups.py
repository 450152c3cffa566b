"""Two groups used in different orders.

What it finds: arms of a branch that use the same two groups, in another order.

Why it happens: each rank waits in one group for a rank that waits in the other: a cycle. On NCCL the kernels
of both groups also wait for each other on the device.

How it decides: the operations of both arms are compared in order, with their groups.

Example: `if rank < 2: all_reduce(a, group=rows); all_reduce(b, group=columns)` and the other way round in
`else`.

Fix: use the groups in one order on all ranks.

Limits: groups are told apart by how they are written.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, on_partings, same_in_other_order

CODE = "LINT113"
CAUSE = "process-group-order"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _groups(parting: Parting) -> set[str]:
    return {operation.group for operation in (*parting.here, *parting.there)}


def _concerns(parting: Parting) -> bool:
    return parting.shape == "branch" and same_in_other_order(parting) and len(_groups(parting)) > 1


def _say(parting: Parting) -> Said:
    names = ", ".join(sorted(group or "default" for group in _groups(parting)))
    message = (
        f"Ranks use the groups {names} in different orders at `{parting.test}`, by {because(parting.reasons)}: "
        "they can wait for each other in a cycle."
    )
    return Said(message, ("Use the groups in the same order on all ranks.",))
