"""DistributedSampler without set_epoch.

What it finds: a shuffling DistributedSampler in a program with epochs that never calls `set_epoch`.

Why it happens: the sampler shuffles by its seed and epoch; without set_epoch every epoch has the same order.

How it decides: the files of a program (up to 24 that import each other; else each file for itself) have a
DistributedSampler that shuffles, or a class that derives from it, and a loop that goes through the data again and again
(over epochs, around a loop or a function that trains, or `while True: yield from loader`), and nothing in the project
calls set_epoch or sets the sampler's `epoch`.

Example: `sampler = DistributedSampler(data)` and `for epoch in range(10):` without
`sampler.set_epoch(epoch)`.

Fix: call sampler.set_epoch(epoch) at the start of every epoch.

Limits: a sampler that gets `**options` is not judged. Lightning, Accelerate and transformers tell the epoch
themselves: programs that import them are left alone.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT201"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "no set_epoch", "warning", FIX)


FIX = "Call sampler.set_epoch(epoch) at the start of every epoch."
