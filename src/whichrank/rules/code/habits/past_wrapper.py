"""A wrapped model that is trained past its wrapper.

What it finds: a loss of `model.module(x)` or `model.module.encode(x)` that is differentiated, where `model` is wrapped
in DistributedDataParallel or FSDP.

Why it happens: the wrapper's forward pass arms the hooks that reduce gradients. A call of the module inside leaves
them off: every rank steps with its own gradients, the replicas drift apart, and nothing fails. With FSDP the
parameters are not gathered either.

How it decides: the value of `.module` is followed through calls, variables and attributes to `backward()`. A loss
that also comes from the wrapper itself is fine, and so are `no_grad`, `state_dict()`, `generate()` and a program that
averages gradients by hand.

Example: `loss = model.module(x).mean()` above `loss.backward()`.

Fix: call the wrapper. Where a method other than forward is needed, let forward choose it by an argument.

Limits: what `Accelerator.prepare` and DeepSpeed wrap is not judged.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT208"
CAUSE = "replica-divergence"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "past wrapper", "error", FIX)


FIX = "Call the wrapper, model(x). Where a method other than forward is needed, let forward choose it by an argument."
