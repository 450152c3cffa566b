"""Ranks that pass different sizes.

What it finds: a tensor whose shape depends on the rank, on local data or on a filter, in a collective that
needs equal shapes.

Why it happens: all_reduce, broadcast and all_gather need the same number of elements everywhere. NCCL does
not check: it hangs or returns wrong data.

How it decides: sizes are followed from constructors, slices (of columns too) and masks to the operation.
all_to_all_single with sizes of this rank's own data on one side only is found too: each side has to be told what the
other sends.

Example: `dist.all_gather(out, scores[mask])`.

Fix: pad to a common size (all-reduce the maximum first), or use all_gather_object.

Limits: sizes that depend on the batch alone count as equal.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules.code_findings import on_disagreements

CODE = "LINT119"
CAUSE = "size-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_disagreements(case, (CODE, CAUSE), "size", Grade.SUPPORTS, FIX)


FIX = "Pad to a common size (all-reduce the maximum first), or use all_gather_object."
