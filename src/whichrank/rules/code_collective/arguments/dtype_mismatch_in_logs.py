"""torch's own check reports different data types in one collective.

## What it finds
Ranks that bring tensors of different type to the same collective, by the words of `TORCH_DISTRIBUTED_DEBUG=DETAIL`.

## Why it happens
Autocast or a cast that one rank alone takes, a checkpoint in another precision, a metric that is an integer on one
rank.

## How it decides
Operation, sequence number and shapes agree and the types differ; the minority over all ranks' messages is the odd
one.

## Example
`… TensorShape=[1], TensorDtypes=Float …, but Rank 2 is running … TensorDtypes=Long`

## Limits
Two ranks that differ have no majority: then nobody is named.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.job_state import statements

CODE = "COLL122"
CAUSE = "dtype-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    return [
        building.found(
            case,
            _CLAIM,
            m.signs,
            f"Ranks bring different data types to {m.op} #{m.seq}: {reported_mismatches.told(case, m)}.",
            Grade.PROVES,
            m.ranks,
        )
        for m in reported_mismatches.mismatches(case)
        if m.aspect == "dtype"
    ]
