"""A call that hides a collective, on some ranks only.

What it finds: forward, backward or state_dict of a wrapped or sharded model, a checkpoint save of DeepSpeed,
Lightning or Accelerate, a metric's compute(), log(sync_dist=True) and the like under a condition on the rank.

Why it happens: the call does not look like communication. Saving on rank 0 is right for plain modules, and
hangs with FSDP, ZeRO or DCP; evaluating `ddp_model(x)` on rank 0 hangs where buffers are broadcast.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if rank == 0: torch.save(fsdp_model.state_dict(), path)`.

Fix: call it on every rank, and let rank 0 alone write the result; for evaluation on one rank use
`model.module`.

Limits: which model is wrapped is known only where the wrapping is in the code that is read. A condition on a
value that the program gets from elsewhere (a file, a service, a library that is not read) counts as the same
on all ranks. Operations on an explicit sub-group under a condition on the rank count as right, unless the
members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import BY_RANK, Said, because, hidden, main_kind, on_one_rank, on_partings, shown

CODE = "LINT110"
CAUSE = "rank0-only-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    by_rank = parting.shape in {"branch", "first", "decorated"} and main_kind(parting) in BY_RANK
    return by_rank and hidden(parting)


def _say(parting: Parting) -> Said:
    condition = f" under `{parting.test}`" if parting.test else ""
    message = (
        f"{shown(parting.concerned)} is collective, and only some ranks call it{condition}: "
        f"it depends on {because(parting.reasons)}."
    )
    cause = CAUSE if on_one_rank(parting) else "conditional-collective"
    return Said(message, _fix(parting.concerned.name), cause)


def _fix(name: str) -> tuple[str, ...]:
    if name == "forward":
        return ("Run it on every rank, or use the unwrapped model (`model.module`) on the one rank.",)
    return (f"Call {name} on every rank; let one rank alone write or print the result.",)
