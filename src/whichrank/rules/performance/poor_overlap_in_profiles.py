"""By the profiles, communication is exposed: computation waits while it runs.

## What it finds
Steps of which a fifth or more is communication with no computation beside it, although all ranks come in time.

## Why it happens
One large bucket that is ready only at the end, collectives on the computing stream, waits right after the call,
prefetching turned off, too little work per step for the network at hand.

## How it decides
Exposed communication is at least 20 % of the typical rank's time. What is only waiting for a late rank does not count:
that is the late rank's finding. Where the steps can be replayed, going on without waiting must save at least 10 %.

## Example
34 % of each step is exposed reduce_scatter and all_gather; 12 % of the communication overlaps.

## Fix
Let gradients be reduced while the rest is computed: bucket sizes (DDP), prefetching (FSDP), overlap_comm (DeepSpeed).

## Limits
What must wait (a tensor-parallel all_reduce whose result the next layer needs) can't be overlapped by a setting. With
profiles of some ranks only it is noted, not claimed: the time may be a wait for a rank that was not profiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.timeline.steps.intervals import median

if TYPE_CHECKING:
    from whichrank.timeline.case import Case
    from whichrank.timeline.steps.analysis import Steps

CODE = "PERF301"
CAUSE = "poor-overlap"
EXPOSED, GAIN = 0.20, 0.10


def judge(case: Case) -> list[Finding] | NotEvaluated:
    steps = case.steps
    if steps is None:
        return NotEvaluated("profiles of the ranks (torch.profiler)")
    if not any(one.communication.sum() for one in steps.ranks):
        return NotEvaluated("profiles that show communication")
    exposed = median([one.exposed.sum() / one.span for one in steps.ranks if one.span])
    late = sum((one.cost_us_per_step or 0.0) * 1e3 for one in steps.stragglers) / steps.step_ns if steps.step_ns else 0
    own = exposed - late
    gain = next((a.gain_us_per_step for a in steps.advice if a.id == "overlap"), None)
    share = gain * 1e3 / steps.step_ns if gain is not None and steps.step_ns else None
    if own < EXPOSED or (steps.play is not None and (share is None or share < GAIN)):
        return []
    return [_finding(steps, own, share)]


def _finding(steps: Steps, exposed: float, share: float | None) -> Finding:
    worst = max(steps.ranks, key=lambda one: int(one.exposed.sum()))
    hidden = 1 - worst.exposed.sum() / max(1, int(worst.communication.sum()))
    world = max((one.world or 0) for one in steps.ranks)
    whole = len(steps.ranks) >= world
    least = f"; at most {share:.0%} of the step could be saved" if share is not None else ""
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="info",  # room for improvement, not a fault: `whichrank trace` gives it as advice
        grade=Grade.SUPPORTS if whole else Grade.HINTS,
        kind="timing",
        subject=Subject(),
        message=f"{exposed:.0%} of each step is communication that no computation hides{least}.",
        evidence=(
            Ref(worst.source, f"{len(worst.ids)} steps", f"{hidden:.0%} of the communication overlaps", worst.rank),
        ),
        alternatives=(Alternative("slow-network", "the same bytes may travel over too slow a network"),),
        fix=(
            "Overlap communication with computation: DDP bucket_cap_mb, FSDP prefetching, DeepSpeed overlap_comm.",
            "whichrank bench tells whether the network is as fast as it should be.",
        ),
    )
