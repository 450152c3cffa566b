"""Replicas that start from different weights.

What it finds: gradients averaged by hand without a seed, a broadcast of the weights or a wrapper.

Why it happens: each process draws other initial weights; averaging gradients keeps them apart forever, and
nothing fails.

How it decides: the program all-reduces gradients and neither seeds, nor broadcasts, nor wraps, nor loads
weights. A seed of the rank is no seed, nor is that of a generator (`torch.Generator().manual_seed(0)`): layers don't
draw from it. The finding names the line that makes the model.

Example: `dist.all_reduce(p.grad)` in a program without `torch.manual_seed`.

Fix: broadcast the parameters from rank 0 before the first step, or seed all ranks alike.

Limits: weights that are loaded elsewhere are not seen.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT202"
CAUSE = "replica-divergence"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "unseeded", "warning", FIX)


FIX = "Broadcast the parameters from rank 0 before the first step, or seed all ranks alike."
