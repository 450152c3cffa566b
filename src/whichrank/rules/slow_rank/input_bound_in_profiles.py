"""By the profiles, steps wait for data: on all ranks, or on one that holds the others up.

## What it finds
Ranks whose devices stand idle inside the data loader for a good part of each step.

## Why it happens
Too few loader workers, slow storage, decoding or tokenising on the fly, a cold cache, one host with a slower disk.

## How it decides
Idle time under the loader's own mark (`enumerate(DataLoader)…`) is a tenth of the step or more on the typical rank; or
one rank comes late to the collectives because of it and the replay without that is at least 3 % shorter.

## Example
Each step waits 47 of 214 ms for `enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`.

## Fix
More workers, prefetching, pinned memory, data closer to the host.

## Limits
Loaders that are not torch's are recognised by their names only; waiting for data that hides behind the device's work
costs nothing and is not reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.profiles.steps import LOADER
from whichrank.timeline.steps.intervals import median

if TYPE_CHECKING:
    from whichrank.model.step_report import Straggler
    from whichrank.timeline.case import Case
    from whichrank.timeline.steps.analysis import Steps

CODE = "SLOW302"
CAUSE = "input-bound"
LEAST, LATE, MUCH = 0.10, 0.03, 0.2


def judge(case: Case) -> list[Finding] | NotEvaluated:
    steps = case.steps
    if steps is None:
        return NotEvaluated("profiles of the ranks (torch.profiler)")
    late = [one for one in steps.stragglers if one.reason == "data-loader"]
    costly = [one for one in late if (one.cost_us_per_step or 0) * 1e3 >= LATE * steps.step_ns]
    if costly:
        return [_late(steps, one) for one in costly]
    return _everywhere(steps)


def _late(steps: Steps, late: Straggler) -> Finding:
    one = next(one for one in steps.ranks if one.rank == late.rank or one.rank is None)
    cost = late.cost_us_per_step or 0.0
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="warning",
        grade=Grade.PROVES if cost * 1e3 >= MUCH * steps.step_ns else Grade.SUPPORTS,
        kind="timing",
        subject=Subject(ranks=(late.rank,), hosts=(late.host,) if late.host else ()),
        message=(
            f"Rank {late.rank} waits for its data and comes {late.late_us_per_step / 1e3:.1f} ms late in {late.steps} "
            f"of {late.of_steps} steps; that costs each step {cost / 1e3:.1f} ms."
        ),
        evidence=(Ref(one.source, f"{late.of_steps} steps", late.doing, late.rank, late.host),),
        victims=tuple(r.rank for r in steps.ranks if r.rank is not None and r.rank != late.rank),
        fix=fix(CAUSE),
    )


def _everywhere(steps: Steps) -> list[Finding]:
    shares = np.array([one.idle[:, LOADER].sum() / one.span if one.span else 0.0 for one in steps.ranks])
    typical = median(shares)
    if typical < LEAST:
        return []
    slow = [one for one, share in zip(steps.ranks, shares, strict=True) if share >= LEAST]
    evidence = tuple(
        Ref(one.source, f"{len(one.ids)} steps", f"{share:.0%} of the time idle in the data loader", one.rank)
        for one, share in zip(steps.ranks, shares, strict=True)
        if share >= LEAST
    )[:4]
    return [
        Finding(
            code=CODE,
            cause=CAUSE,
            category="slow",
            severity="warning",
            grade=Grade.PROVES if typical >= MUCH else Grade.SUPPORTS,
            kind="timing",
            subject=Subject(ranks=tuple(one.rank for one in slow if one.rank is not None)),
            message=f"The typical rank is idle for {typical:.0%} of each step, waiting for its data loader.",
            evidence=evidence,
            fix=fix(CAUSE),
        )
    ]
