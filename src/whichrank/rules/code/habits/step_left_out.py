"""An optimizer step that some replicas leave out.

What it finds: `optimizer.step()` under a condition on this rank's own loss, data, clock or errors, in a program that
wraps its model (DistributedDataParallel, FSDP).

Why it happens: gradients are averaged in backward, but each rank decides for itself whether to apply them: the
replicas drift apart without an error.

How it decides: the condition is followed like those around collectives, through helpers and early exits. Where the
backward pass depends on it too, the collective is named instead.

Example: `if loss.item() < limit: optimizer.step()` after `loss.backward()`.

Fix: reduce the value over all ranks before it decides, or decide on the norm of the averaged gradients.

Limits: optimizers are told by the names of variables. Models that are averaged later (`average_parameters`) are left
alone.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT209"
CAUSE = "replica-divergence"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "step left out", "warning", FIX)


FIX = "Reduce the value over all ranks before it decides, or decide on the norm of the averaged gradients."
