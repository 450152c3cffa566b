"""Checksums of parameters that the job printed for each rank are not equal.

## What it finds
The first step at which replicas that must be equal have different checksums or norms of their parameters, and the
rank that differs from the majority.

## Why it happens
Replicas that were seeded or loaded differently and never broadcast, code that changes parameters on one rank, a GPU
or memory that gave one wrong value.

## How it decides
Values that are called a checksum, a hash or a norm of the parameters are compared between ranks at the same step. A
majority names the odd ranks. Without one nobody is named, and it is only a hint: shards differ by design. Parameters
that once differ stay different: where the values agree again, or are those of a test that all GPUs run, a GPU computed
wrongly.

## Example
     1200     2  ada-0   59156d1bc79c
     1200     3  ada-0   62f7b654ccf3

## Limits
What ranks may have different values of (gradients before the reduction, batches, losses) is not compared.
"""

from __future__ import annotations

import re

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import measured

CODE = "SILE205"
CAUSE = "replica-divergence"

_NEXT = (NextStep("whichrank run --guard -- torchrun …", "names the tensor and the step", (CAUSE,), "ends"),)
_COMPUTED = "gpu-computes-wrong"
_OTHER = Alternative(_COMPUTED, "a GPU that computed one update wrongly leaves the same trace")
_TEST = re.compile(r"(?i)\b(?:gemm|matmul|burn|stress|accept(?:ance)?|self-?test|determinis\w{1,6}|golden|sdc)")
"""What a program calls work that must have the same result on every GPU."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not any(cell.quantity == "checksum" for record in case.rank_values for cell in record.cells):
        return NotEvaluated("checksums of parameters by rank")
    split = measured.divergence(case.rank_values)
    if split is None:
        return []
    ranks = measured.ranks_of(case, split.members)
    when = f" from step {split.step} on" if split.step >= 0 else ""
    before = ", and agreed before" if split.agreed_before else ""
    if ranks:
        who = wording.culprits_text(case, ranks)
        message = f"{who[0].upper()}{who[1:]} differs from the other replicas in {split.name}{when}{before}."
    else:
        message = f"The replicas differ in {split.name}{when}{before}; no majority says which of them is wrong."
    tested = split.agreed_after or any(_TEST.search(ref.quote) for ref in split.refs)
    cause, other = (_COMPUTED, None) if tested and ranks else (CAUSE, _OTHER if split.agreed_before else None)
    if cause == _COMPUTED:
        message = f"{who[0].upper()}{who[1:]} computed another {split.name} than the others of the same work{when}."
    return [
        Finding(
            code=CODE,
            cause=cause,
            category="corruption",
            severity="error",
            grade=Grade.PROVES if split.agreed_before else Grade.SUPPORTS if ranks else Grade.HINTS,
            kind="records",
            subject=Subject(ranks=ranks, hosts=measured.hosts_of(case, split.members) if cause == _COMPUTED else ()),
            message=message,
            evidence=split.refs,
            alternatives=(other,) if other is not None else (),
            fix=fix(cause),
            next=_NEXT if cause == CAUSE else (),
        )
    ]
