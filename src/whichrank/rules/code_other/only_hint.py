"""A line about the machine is a hint, and nothing else is at hand.

## What it finds
A setting of the machine that slows or breaks jobs, in a few lines that say nothing of what happened: GPUDirect RDMA
that is off, PCIe access control that is on, a kernel without iommu=pt, a fabric provider that offers nothing, a slow
PCIe link, an address that torchrun does not use.

## Why it happens
Somebody looked for the reason, kept the line that seemed odd, and left out the rest.

## How it decides
By such a line in a short excerpt, where no message tells a cause, no event of a job was read, no rank was seen to come
up or to make a step. Whole logs hold such lines as well, and most of those jobs are well: there it is silent.

## Example
`NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'`, and no more.

## Fix
That of the cause, as `whichrank explain CAUSE` tells it; and the whole output of the job, so that it can be judged.

## Limits
The line may be true and have nothing to do with the failure: the confidence stays low, and nobody is accused.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.processes import Traceback
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "CODE202"
CAUSE = "unknown"

_HINTS = (
    "nccl-gdr-disabled", "acs-enabled", "rccl-iommu", "libfabric-empty-list", "torchrun-master-addr-unused",
    "pcie-lnksta-slow",
)  # fmt: skip
_EXCERPT = 100
"""Lines. What people paste is shorter; what a job prints until its first step is longer."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    seen = known_messages.seen(case, *_HINTS)
    if not seen or _says_more(case):
        return []
    lead = max(seen, key=lambda s: s.signature.grade)
    same = [s for s in seen if s.id == lead.id]
    claim = Claim(
        CODE,
        lead.signature.cause,
        fix=(lead.signature.fix, "Keep the whole output of the job as well: these lines do not say what happened."),
        category=cast(Category, causes()[lead.signature.cause].usual_category),
        severity="warning",
    )
    tell = "Nothing at hand says what happened; one line is a hint: {what}."
    return [replace(building.tell_of(case, claim, tell, same, Grade.HINTS), subject=Subject(), victims=())]


def _says_more(case: Case) -> bool:
    """Whether anything else tells of a job, or the evidence is more than an excerpt."""
    told = any(not isinstance(event, Traceback) or event.type for event in case.log_events)  # not one that was cut
    if case.goes_on or told or case.progress or case.lineup is not None or case.stacks or case.unplaced:
        return True
    if case.index.roots or any(s.line > _EXCERPT for s in case.sightings):
        return True
    return any(
        process.last_line > _EXCERPT or process.transports or any(init.phase == "complete" for init in process.inits)
        for process in case.nccl
    )
