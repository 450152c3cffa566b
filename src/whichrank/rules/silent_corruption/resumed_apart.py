"""Ranks resumed from checkpoints of different steps.

## What it finds
Ranks that say they resumed from another step than the others.

## Why it happens
A folder of checkpoints that is local to each host, or behind on one of them; a link `last` that was not moved
everywhere; a rank that found its newest file damaged and took the one before.

## How it decides
By the last such line of every rank, if all ranks that say so said it as often. The fewer ranks are the odd ones; of two
sides of one size the one with the earlier step, whose checkpoint is the older one.

## Example
    rank 8: resume from /ckpt/last.ckpt: step 82500     (ranks 0-7: step 84000)

## Fix
Load the checkpoint on one rank and broadcast it, or compare the step on all ranks before the first batch.

## Limits
Parts of a model that are trained apart on purpose may go on from steps of their own.
"""

from __future__ import annotations

from collections import defaultdict

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.known_messages import Seen, seen

CODE = "SILE207"
CAUSE = "replica-divergence"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    blames="host",
    fix=("Load the checkpoint on one rank and broadcast it, or compare its step on all ranks first.", *fix(CAUSE)),
)
_MESSAGE = "resumed-at-step"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told: dict[int, list[Seen]] = defaultdict(list)
    for one in seen(case, _MESSAGE):
        if one.sign.rank is not None:
            told[one.sign.rank].append(one)
    if len(told) < 2:
        return NotEvaluated("ranks that say from which step they went on")
    last = {rank: said[-1] for rank, said in told.items()}
    steps: dict[int, list[int]] = defaultdict(list)
    for rank, one in last.items():
        steps[int(one.group("step"))].append(rank)
    if len(steps) != 2 or len({len(said) for said in told.values()}) != 1:
        return []
    odd = min(steps, key=lambda step: (len(steps[step]), step))
    (usual,) = steps.keys() - {odd}
    ranks = tuple(sorted(steps[odd]))
    signs = [last[ranks[0]].sign, last[min(steps[usual])].sign]
    who = building.who(case, ranks, signs[:1])
    message = f"{who} resumed from step {odd}, the others from step {usual}: the replicas differ since then."
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, ranks)]
