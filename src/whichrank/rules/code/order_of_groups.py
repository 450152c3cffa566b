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
from whichrank.rules.code_words import NO_PROGRAM, because, is_program, parted, same_in_other_order

CODE = "LINT113"
CAUSE = "process-group-order"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for parting in case.partings:
        groups = {operation.group for operation in (*parting.here, *parting.there)}
        if parting.shape != "branch" or not same_in_other_order(parting) or len(groups) < 2:
            continue
        message = (
            f"Ranks use the groups {', '.join(sorted(group or 'default' for group in groups))} in different orders at "
            f"`{parting.test}`, by {because(parting.reasons)}: they can wait for each other in a cycle."
        )
        fix = ("Use the groups in the same order on all ranks.",)
        found.append(parted(CODE, CAUSE, parting, message, fix))
    return found
