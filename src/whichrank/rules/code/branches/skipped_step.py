"""A training step that one rank skips for itself.

What it finds: `continue` or `return` on a local loss, gradient norm or batch, past the backward pass or step
of a wrapped model.

Why it happens: a NaN loss, an overflow or a bad batch is skipped where it occurs. The other ranks run
backward, whose gradient reduction waits for the rank that skipped.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if torch.isnan(loss): continue` above `loss.backward()` with DistributedDataParallel.

Fix: decide together: all-reduce the flag, then let all ranks skip or none. GradScaler does so for overflow
with FSDP's ShardedGradScaler.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import BY_RANK, Said, because, hidden, main_kind, on_partings, shown

CODE = "LINT120"
CAUSE = "conditional-collective"


SHAPES = frozenset({"return", "continue", "exit", "skipped step"})


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return parting.shape in SHAPES and main_kind(parting) not in BY_RANK and hidden(parting)


def _say(parting: Parting) -> Said:
    message = (
        f"A rank skips the step at `{parting.test}` by itself and the others wait in {shown(parting.concerned)}: "
        f"it depends on {because(parting.reasons)}."
    )
    fix = (
        "Decide together: all-reduce the flag (MAX) and let all ranks skip, or none.",
        "Or run backward on a zero loss (`loss * 0`) instead of skipping it.",
    )
    return Said(message, fix)
