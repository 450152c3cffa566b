"""Ranks that pass different sizes.

What it finds: a tensor whose shape depends on the rank, on local data or on a filter, in a collective that
needs equal shapes.

Why it happens: all_reduce, broadcast and all_gather need the same number of elements everywhere. NCCL does
not check: it hangs or returns wrong data.

How it decides: sizes are followed from constructors, slices and masks to the operation.

Example: `dist.all_gather(out, scores[mask])`.

Fix: pad to a common size (all-reduce the maximum first), or use all_gather_object.

Limits: sizes that depend on the batch alone count as equal.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, is_program, told

CODE = "LINT119"
CAUSE = "size-mismatch"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for apart in case.disagreements:
        if apart.about == "size":
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            fix = ("Pad to a common size (all-reduce the maximum first), or use all_gather_object.",)
            found.append(told(CODE, CAUSE, "corruption", "error", 0.8, message, refs, fix))
    return found
