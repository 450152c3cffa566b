"""A learning-rate schedule that differs between ranks.

What it finds: a scheduler whose length comes from this rank's own data (`len(loader)` of an unequal shard).

Why it happens: gradients are averaged, but every rank multiplies them by another learning rate: the replicas
drift apart without an error.

How it decides: the arguments of schedulers are followed like values.

Example: `CosineAnnealingLR(opt, T_max=len(loader))` with one data set per rank.

Fix: use a length that all ranks share: the minimum of all by all_reduce, or a number of steps from the
configuration.

Limits: schedulers are told by their name.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT207"
CAUSE = "replica-divergence"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "local schedule", "warning", FIX)


FIX = "Use a length that all ranks share: the minimum by all_reduce, or a number from the configuration."
