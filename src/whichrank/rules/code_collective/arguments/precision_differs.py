"""Some ranks say that they compute in another precision than the others.

## What it finds
Ranks that print another precision (`precision=fp16`) than most, in a job that fails or whose loss is no longer finite.

## Why it happens
A GPU that can't compute in bf16 and a script that falls back to fp16, a configuration of one host, a default of another
version. The ranks then pass tensors of different types to the same collective: NCCL reads the bits of one type as the
other's, since both have as many.

## How it decides
What ranks print of their precision when they start. The majority names the odd ranks. It supports the cause where the
loss is not finite or somebody says that results are wrong, and hints at it where the job failed. Otherwise it is only
noted: stages of a pipeline may differ on purpose.

## Example
    [rank3] host node2 gpu NVIDIA A40 precision=bf16
    [rank4] host node3 gpu Tesla V100 precision=fp16

## Limits
A rank that prints nothing of its precision is not compared. What is cast before the collective may be right all the
same.
"""

from __future__ import annotations

from collections import Counter

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.run_state import PRECISION, Environment, LossNonfinite
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events
from whichrank.timeline.job_state.trials import said_category

CODE = "COLL142"
CAUSE = "dtype-mismatch"

_LEAST = 3
"""Ranks of which two can be a majority."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told = {e.rank: e for e in case.events(Environment) if e.rank is not None and PRECISION in e.variables}
    if len(told) < _LEAST:
        return NotEvaluated("the precision that three ranks or more print")
    counts = Counter(event.variables[PRECISION] for event in told.values())
    (usual, most), *_ = counts.most_common(1)
    odd = {rank: event for rank, event in told.items() if event.variables[PRECISION] != usual}
    if not odd or 2 * most <= len(told):
        return []
    wrong = bool(case.events(LossNonfinite)) or said_category(case) == "corruption"
    failed = not wrong and kernel_events.failed(case)
    ranks = tuple(sorted(odd))
    others = next(event for event in told.values() if event.variables[PRECISION] == usual)
    theirs = ", ".join(sorted({event.variables[PRECISION] for event in odd.values()}))
    told_hosts = {case.people.host_of(rank) for rank in ranks}
    hosts = tuple(host for host in told_hosts if host) if len(told_hosts) == 1 else ()
    who = f"{wording.culprits_text(case, ranks).capitalize()} {'computes' if len(ranks) == 1 else 'compute'}"
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category=("hang" if case.stands_still else "crash") if failed else "corruption",
            severity="error" if wrong or failed else "info",
            grade=Grade.SUPPORTS if wrong else Grade.HINTS,
            kind="messages",
            subject=Subject(ranks=ranks, hosts=hosts),
            message=f"{who} in {theirs}, the others in {usual}: they pass different types to the same collective.",
            evidence=(*(event.ref for event in list(odd.values())[:2]), others.ref),
            fix=fix(CAUSE),
            victims=tuple(rank for rank in range(case.world) if rank not in ranks),
        )
    ]
