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

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import on_disagreements

CODE = "LINT117"
CAUSE = "reduce-op-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_disagreements(case, (CODE, CAUSE), "op", Grade.PROVES, FIX)


FIX = "Use the same reduction on every rank."
