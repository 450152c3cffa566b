"""A process group or device mesh that not all ranks create.

What it finds: `new_group`, `init_device_mesh`, `split_group` or `init_process_group` under a condition that
differs between ranks.

Why it happens: new_group has to be called by all processes of the job, in the same order, those that are not
members included. It is natural, and wrong, to write `if rank in members: group = dist.new_group(members)`.

How it decides: A value is followed from where it comes from (the rank, the environment, this rank's batches,
the clock, the file system, random numbers without a seed, exceptions) through assignments, calls, returns and
attributes of the whole project. It stops to differ after a broadcast, all-reduce or all-gather. Both sides of
a branch are compared: the same operations on both sides are fine, and so is a raise.

Example: `if rank < 2: pair = dist.new_group([0, 1])`.

Fix: create all groups on all ranks, then keep the one you are a member of; or pass
`use_local_synchronization=True`.

Limits: A condition on a value that the program gets from elsewhere (a file, a service, a library that is not
read) counts as the same on all ranks. Operations on an explicit sub-group under a condition on the rank count
as right, unless the members of the group are written out.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, makes_group, on_one_rank, on_partings, shown

CODE = "LINT111"
CAUSE = "conditional-collective"


OTHERS_SPEAK = frozenset({"break", "loop", "while", "swallowed", "except", "finally", "thread"})


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return makes_group(parting) and parting.shape not in OTHERS_SPEAK


def _say(parting: Parting) -> Said:
    message = (
        f"{shown(parting.concerned)} has to be called by all ranks, in the same order; here only some do, by "
        f"{because(parting.reasons)}."
    )
    fix = ("Create every group on every rank, members or not, and keep the one this rank belongs to.",)
    return Said(message, fix, "rank0-only-collective" if on_one_rank(parting) else CAUSE)
