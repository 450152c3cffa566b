"""Ranks that use different reductions.

What it finds: an `op` of all_reduce or reduce that differs between ranks.

Why it happens: the operator is chosen by rank or by local data; the result is neither a sum nor a maximum,
without an error.

How it decides: the operator is followed like a value, and arms of a branch are compared.

Example: `dist.all_reduce(x, op=SUM if rank == 0 else MAX)`.

Fix: use the same reduction on every rank.

Limits: operators from configuration count as the same everywhere.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, is_program, told

CODE = "LINT117"
CAUSE = "reduce-op-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for apart in case.disagreements:
        if apart.about == "op":
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            fix = ("Use the same reduction on every rank.",)
            found.append(told(CODE, CAUSE, "corruption", "error", 0.85, message, refs, fix))
    return found
