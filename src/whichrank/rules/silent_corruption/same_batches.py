"""Ranks train on the wrong samples: the same batch on two of them, or a sampler that is set up differently.

## What it finds
Data-parallel ranks that get the same batch at every step, and samplers whose seed, epoch or share differs from those
of the other ranks.

## Why it happens
No DistributedSampler, or one that thinks it is another rank; a seed that was drawn on every rank by itself; a rank
that does not call set_epoch. The job learns from fewer samples than it should, or from some twice.

## How it decides
Every rank's guard writes down checksums of the first samples of its batch. Ranks of one replica group whose batches
are identical for six looks, while batches change, share their data. DistributedSamplers are compared by their
arguments, pass by pass; the majority names the odd rank.

## Example
    DistributedSampler seed 1234     (rank 2; 0 on the others)

## Fix
Give every rank its share: DistributedSampler with the same seed on every rank, and set_epoch on all of them.

## Limits
Other ways to share data are known by their batches alone. Samples that are augmented at random are never identical.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.rules.wording import ranks_text
from whichrank.timeline.case import Case
from whichrank.timeline.guard.wrong import Wrong

CODE = "SILE304"
CAUSE = "data-order"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    found = guard_findings.wrongs(case, "batch", "sampler")
    if isinstance(found, NotEvaluated):
        return found
    return [_sampler(case, wrong) if wrong.kind == "sampler" else _batch(case, wrong) for wrong in found]


def _sampler(case: Case, wrong: Wrong) -> Finding:
    mine = " / ".join(sorted({v for rank, v in wrong.values.items() if rank in wrong.odd or not wrong.odd}))
    theirs = sorted({v for rank, v in wrong.values.items() if rank not in wrong.odd})
    instead = f" instead of {' / '.join(theirs[:4])}" if wrong.odd and wrong.tensor != "rank" else ""
    whose = guard_findings.who(wrong).lower()
    message = f"The DistributedSampler of {whose} has {wrong.tensor} {mine}{instead}, in pass {wrong.detail['turn']}."
    fix = (
        "Give DistributedSampler the same seed on every rank, its own rank to each, and call set_epoch on all of them.",
        "Samples of that rank are drawn in another order: some are seen twice in an epoch, others not at all.",
    )
    return guard_findings.found(
        case, wrong, CODE, CAUSE, message, Grade.PROVES, fix, places=[str(wrong.detail.get("place", ""))]
    )


def _batch(case: Case, wrong: Wrong) -> Finding:
    sides = " and ".join(ranks_text(side) for side in wrong.detail["sides"])
    message = f"{sides[0].upper()}{sides[1:]} were fed the same batches, from step {wrong.step} on."
    fix = ("Give every rank its share of the data: a DistributedSampler, or a seed or shard that depends on the rank.",)
    return guard_findings.found(case, wrong, CODE, CAUSE, message, Grade.PROVES, fix)
