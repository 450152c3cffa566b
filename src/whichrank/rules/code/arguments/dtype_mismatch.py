"""Ranks that pass different types.

What it finds: a tensor that is cast on some ranks only and then communicated, and an operation that receives into
tensors of another type than it sends.

Why it happens: bytes are moved, not numbers: float16 on one rank and float32 on another gives garbage, or a
hang because the sizes differ.

How it decides: casts (`half()`, `to(torch.…)`, `dtype=`) in arms of branches that differ between ranks are
followed to the operation. Both sides of one call are compared where both types are known.

Example: `if rank == 0: x = x.half()` above `dist.all_reduce(x)`; `dist.all_gather([torch.zeros(n) for _ in
range(world)], x.half())`.

Fix: cast on all ranks, or on none; make buffers with `torch.empty_like(x)`.

Limits: types that follow from data are not known.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import on_disagreements

CODE = "LINT118"
CAUSE = "dtype-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_disagreements(case, (CODE, CAUSE), "dtype", Grade.SUPPORTS, FIX)


FIX = "Cast on all ranks, or on none; make buffers with torch.empty_like(x)."
