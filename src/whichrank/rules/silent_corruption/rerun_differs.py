"""A trainer repeated a step and got another result.

## What it finds
A GPU that gives other results for the same work.

## Why it happens
Silent data corruption: a defect of the GPU or its memory that no error reports.

## How it decides
By the trainer's own repetition of the step. Where the same GPU gives another result the second time, it is that GPU.
Where it gives the same again, and another GPU does not, it is the first one: the host on which the second check ran has
nothing to do with it. Without the log of the first check the rank is only a candidate: it ran elsewhere then.

## Example
`Rank 3, node gpu-12, device 3, iteration #812: First rerun: unexpected result is not reproducible within the tolerance`

## Limits
A kernel that is not deterministic repeats no result either.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Gpu, NextStep, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.known_messages import Seen

CODE = "SILE202"
CAUSE = "gpu-computes-wrong"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
    category="corruption",
    blames="gpu",
    next=(NextStep("dcgmi diag -r 4", "on that GPU: tells whether it computes rightly", (CAUSE,), "load"),),
)
_TELL = "{who} got another result for the same work: {what}."
_SAME = "megatron-same-result"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    found = building.judged(case, _CLAIM, _TELL)
    told = known_messages.of_cause(case, CAUSE)
    if not isinstance(found, list) or not any(s.group("elsewhere") or s.group("persistent") for s in told):
        return found
    return [_of_the_first(case, finding, told) for finding in found]


def _of_the_first(case: Case, finding: Finding, told: Sequence[Seen]) -> Finding:
    """The finding about the GPU that gave the result which another one did not."""
    first = [s for s in told if s.id == _SAME and s.group("culprit") and s.group("node")]
    places = {(int(s.group("culprit")), s.group("node"), int(s.group("device"))) for s in first}
    if len(places) != 1:
        again = tuple(sorted({int(s.group("culprit")) for s in told if s.group("culprit")}))
        return replace(finding, subject=Subject(candidates=again), victims=())
    ((rank, host, device),) = places
    subject = Subject(ranks=(rank,), hosts=(host,), gpus=(Gpu(host, device),))
    message = (
        f"GPU {device} of {host}, which rank {rank} used, got another result for the same work than a different GPU: "
        f"{building.short(first[0].sign.ref.quote)}."
    )
    others = tuple(other for other in range(case.world) if other != rank)
    evidence = tuple(dict.fromkeys((first[0].sign.ref, *finding.evidence)))[:6]
    return replace(finding, subject=subject, message=message, evidence=evidence, victims=others)
