"""By the profiles, one rank comes late to the collectives and the others wait for it.

## What it finds
A rank that arrives after the others, step after step, on clocks that the collectives themselves align; what it did
instead; and what that costs.

## Why it happens
A slower or throttled GPU, more work on one rank, a busy or badly pinned CPU, Python's garbage collector, checkpoints
or logging on one rank.

## How it decides
Lateness is the arrival after the others' median, capped by the rank's own time beyond theirs: a rank that others held
up is not late by itself. The rank must stand clear of the others, be late in at least half of the steps (or once for
half a step), and the replay of the steps without its lateness must be at least 5 % shorter.

## Example
Rank 5 arrives 31 ms late in each of 10 steps; its kernels take 30 % longer. Without it a step takes 182 instead of
210 ms.

## Fix
Compare that rank's GPU clocks, CPU load and amount of work with a neighbour's; move what only one rank does out of the
step.

## Limits
It needs profiles of at least two ranks that share collectives. Lateness that communication hides costs nothing and is
only listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject

if TYPE_CHECKING:
    from whichrank.model.step_report import Straggler
    from whichrank.timeline.case import Case
    from whichrank.timeline.steps.analysis import Steps

CODE = "SLOW301"
CAUSE = "straggler"
LEAST, MUCH = 0.05, 0.1
FIXES = {
    "compute": "Compare that rank's GPU clocks, temperature and amount of work with a neighbour's.",
    "checkpoint": "Write checkpoints asynchronously, or on all ranks at once.",
    "garbage-collection": "Call gc.disable(), and gc.collect() at the same step on all ranks.",
    "synchronisation": "Remove .item(), .cpu() and synchronize() from the step of that rank.",
    "host": "Look at what that rank's host does in this time: py-spy top --pid PID; CPU load and affinity.",
}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    steps = case.steps
    if steps is None:
        return NotEvaluated("profiles of the ranks (torch.profiler)")
    if len(steps.ranks) < 2 or steps.play is None:
        return NotEvaluated("profiles of several ranks that share collectives")
    costly = [late for late in steps.stragglers if (late.cost_us_per_step or 0) * 1e3 >= LEAST * steps.step_ns]
    return [_finding(steps, late) for late in costly if late.reason != "data-loader"]


def _finding(steps: Steps, late: Straggler) -> Finding:
    cost = late.cost_us_per_step or 0.0
    share = cost * 1e3 / steps.step_ns
    one = next(one for one in steps.ranks if one.rank == late.rank or one.rank is None)
    others = tuple(r.rank for r in steps.ranks if r.rank is not None and r.rank != late.rank)
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="warning",
        grade=Grade.PROVES if share >= MUCH and 2 * late.steps > late.of_steps else Grade.SUPPORTS,
        kind="timing",
        subject=Subject(ranks=(late.rank,), hosts=(late.host,) if late.host else ()),
        message=(
            f"Rank {late.rank} comes {late.late_us_per_step / 1e3:.1f} ms late in {late.steps} of {late.of_steps} "
            f"steps and costs each step {cost / 1e3:.1f} ms ({share:.0%}); meanwhile: {late.doing}."
        ),
        evidence=(Ref(one.source, f"{late.of_steps} steps", late.doing, late.rank, late.host),),
        victims=others,
        alternatives=(Alternative("cpu-starved", "its process may lack CPU"),),
        fix=(FIXES.get(late.reason, FIXES["host"]),),
    )
