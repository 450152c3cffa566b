"""A collective that only some ranks reach, by their rank.

What it finds: a collective under `if rank == 0`, inside a function that runs on one rank only
(`@rank_zero_only`, `@accelerator.on_main_process`), or inside `with main_process_first()`.

Why it happens: logging, saving and evaluation are done by one rank, and a call in there communicates. The
other ranks never join, and the rank that called it waits until the timeout.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if dist.get_rank() == 0: dist.all_reduce(total); print(total)`.

Fix: let every rank make the call, and let rank 0 alone use the result.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import (
    BY_RANK,
    Said,
    because,
    hidden,
    main_kind,
    makes_group,
    on_one_rank,
    on_partings,
    same_in_other_order,
    shown,
)

CODE = "LINT101"
CAUSE = "rank0-only-collective"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    by_rank = parting.shape in {"branch", "first", "decorated"} and main_kind(parting) in BY_RANK
    return by_rank and not hidden(parting) and not makes_group(parting) and not same_in_other_order(parting)


def _say(parting: Parting) -> Said:
    who = "one rank" if parting.doers == 1 else "some ranks"
    condition = f" under `{parting.test}`" if parting.test else ""
    message = f"Only {who} will call {shown(parting.concerned)}{condition}: it depends on {because(parting.reasons)}."
    fix = (
        f"Move {parting.concerned.name} out of the condition, so that every rank of the group calls it.",
        "Keep only what is not collective (printing, writing a file) inside.",
    )
    return Said(message, fix, CAUSE if on_one_rank(parting) else "conditional-collective")
