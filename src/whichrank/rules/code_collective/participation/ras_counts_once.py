"""RAS shows ranks that have launched different numbers of operations.

## What it finds
One report of RAS in which the ranks of a communicator differ, and nothing that says whether the job moves.

## Why it happens
In every running job the counts differ for a moment. If they stay so, some rank is held up before its next operation.

## How it decides
One report can not tell the two apart, so nobody is accused: it is told as a possibility, and that a second report
settles it.

## Example
`30 ranks have launched up to operation 640`, `2 ranks have launched up to operation 641`

## Fix
Ask RAS again after some seconds. If the counts have not moved, look at the ranks that are behind, which are not
always those that RAS lists.

## Limits
The ranks that RAS lists by name are the few, not the guilty.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.timeline.case import Case

CODE = "COLL204"
CAUSE = "collective-desync"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.ras:
        return NotEvaluated("a report of NCCL's RAS")
    if case.troubles or case.stands_still or case.goes_on:
        return []
    for report in case.ras:
        for mismatch in report.mismatches:
            if mismatch.counts is None:
                continue
            words = ", ".join(f"{v.ranks_count} ranks at {mismatch.topic} operation {v.value}" for v in mismatch.values)
            return [_possible(Ref(report.source, f"line {mismatch.line}", words), words)]
    return []


def _possible(ref: Ref, words: str) -> Finding:
    step = NextStep(
        "ncclras; sleep 10; ncclras",
        "counts that have not moved mean a hang; else all is well",
        (CAUSE,),
        "none",
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="info",
        grade=Grade.HINTS,
        kind="records",
        subject=Subject(),
        message=f"If the counts stay so, ranks are at different operations: {words}.",
        evidence=(ref,),
        fix=("Ask RAS again; if the counts have not moved, collect stacks of the ranks that are behind.",),
        next=(step,),
    )
