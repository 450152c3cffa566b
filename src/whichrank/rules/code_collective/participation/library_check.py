"""A library's own check found that ranks pass different inputs to one operation.

## What it finds
Ranks of Horovod that bring different types, operations or roots under one name; ranks of DeepSpeed's ZeRO-3 that want
to gather different parameters; what torch's own analyzer of dumps (torchfrtrace) prints.

## Why it happens
A branch by rank or by data, another order of calls, another configuration on one host.

## How it decides
By the words of the check, which say what differs. They do not say whose is the odd one, so nobody is named. Lines
after which training went on for many steps are not counted.

## Example
`Mismatched data types: One rank had type int64, but another rank had type uint8.`

## Fix
Let every rank bring the same to every call: find the branch above it.

## Limits
Who deviates must be found by the stacks or the logs of the ranks.
"""

from __future__ import annotations

from typing import cast

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "COLL208"
CAUSE = "collective-desync"

_CHECKS = (
    "deepspeed-disagreement", "horovod-types-differ", "horovod-operations-differ", "horovod-roots-differ",
    "frtrace-dtype", "frtrace-type", "frtrace-missing", "ucc-comm-check", "torch-fingerprint-cut",
)  # fmt: skip
_NEXT = NextStep(
    "py-spy dump --nonblocking --pid PID", "the stack of each rank shows which one is elsewhere", (), "none"
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [
        s
        for s in known_messages.seen(case, *_CHECKS)
        if not statements.survived_at(case, s.sign.ref.source, s.event.line, s.sign.rank)
    ]
    return [
        building.tell_of(
            case,
            Claim(CODE, cause, (same[0].signature.fix,), cast(Category, causes()[cause].usual_category), next=(_NEXT,)),
            "The ranks do not bring the same: {what}.",
            same,
            known_messages.grade(same),
        )
        for cause in dict.fromkeys(s.signature.cause for s in told)
        if (same := [s for s in told if s.signature.cause == cause])
    ]
