"""Replicas that start from different weights.

What it finds: gradients averaged by hand without a seed, a broadcast of the weights or a wrapper.

Why it happens: each process draws other initial weights; averaging gradients keeps them apart for ever, and
nothing fails.

How it decides: the program all-reduces gradients and neither seeds, nor broadcasts, nor wraps, nor loads
weights.

Example: `dist.all_reduce(p.grad)` in a program without `torch.manual_seed`.

Fix: broadcast the parameters from rank 0 before the first step, or seed all ranks alike.

Limits: weights that are loaded elsewhere are not seen.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, habit, is_program

CODE = "LINT202"
CAUSE = "replica-divergence"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    fix = ("Broadcast the parameters from rank 0 before the first step, or seed all ranks alike.",)
    return [habit(CODE, CAUSE, "warning", found, fix) for found in case.habits if found.what == "unseeded"]
